package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/seed14bd9ef4/redsync"
)

// expiry is how long a worker that died keeps others from its accounts.
const expiry = 2 * time.Second

// transfer moves an amount. If it fails, or the process dies, one half may be done. Then the next transfer that locks
// the accounts settles it. Each account is a name of the lock.
func (w *worker) transfer(ctx context.Context, from, to string, amount int) error {
	if from == to { // source and target would be two copies of one account, and each write would undo the other
		return fmt.Errorf("%s: %w", from, errSame)
	}
	both := w.rs.NewMultiMutex([]string{from, to}, redsync.WithFencing(), redsync.WithExpiry(expiry), redsync.WithTries(0))
	return both.Do(ctx, func(ctx context.Context) error {
		token := redsync.FromContext(ctx).Fence() // one token for both accounts

		// Look at both accounts before any write: from then on each of them refuses a former holder. Otherwise a
		// former holder could still write to one account after this worker has settled the other one.
		source, err := w.look(token, from, "has both accounts")
		if err != nil {
			return err
		}
		target, err := w.look(token, to, "")
		if err != nil {
			return err
		}
		if err := w.settleBoth(token, &source, &target); err != nil {
			return err
		}
		if source.Balance < amount {
			return fmt.Errorf("%s has only %d", from, source.Balance)
		}

		payment := &Payment{ID: rand.Text(), To: to, Amount: amount}
		source.Balance -= amount
		source.Sent = payment // in one write with the balance: the next worker sees that the transfer is half done
		if err := w.store(token, source, "withdraws %d", amount); err != nil {
			return err
		}
		if err := w.halfway(); err != nil {
			return err
		}
		target.Balance += amount
		target.Got = append(target.Got, payment.ID) // in one write with the balance: the payment has arrived
		if err := w.store(token, target, "deposits %d", amount); err != nil {
			return err
		}
		source.Sent = nil
		return w.store(token, source, "is done")
	})
}
