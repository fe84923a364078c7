package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync"
)

// expiry is how long a worker that died keeps others from its accounts.
const expiry = 2 * time.Second

// A worker moves money between accounts. Each account of a transfer is a name of its lock.
type worker struct {
	who  string
	rs   *redsync.Redsync
	bank *client

	halfway func() error // called between the two halves of a transfer; nil for nothing
}

// transfer moves an amount. If it fails, or the process dies, one half may be done. Then the next transfer that locks
// the accounts settles it. transfer refuses to move money from an account to itself: source and target would be two
// copies of one account, and each write of one copy would undo that of the other.
func (w *worker) transfer(ctx context.Context, from, to string, amount int) error {
	if from == to {
		return fmt.Errorf("%s: %w", from, errSame)
	}
	mutex := w.rs.NewMultiMutex([]string{from, to},
		redsync.WithFencing(), redsync.WithWatchdog(), redsync.WithExpiry(expiry), redsync.WithTries(0))
	if err := mutex.LockContext(ctx); err != nil {
		return err // neither account is locked
	}
	defer mutex.Unlock()
	token := mutex.Fence() // one token for both accounts

	// Look at both accounts before any write: from then on each of them refuses a former holder. Otherwise a
	// former holder could still write to one account after this worker has settled the other one.
	source, err := w.bank.look(token, from, w.who+" has both accounts")
	if err != nil {
		return err
	}
	target, err := w.bank.look(token, to, "")
	if err != nil {
		return err
	}
	if err := w.settle(token, &source, &target); err != nil {
		return err
	}
	if err := w.settle(token, &target, &source); err != nil {
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
	if w.halfway != nil {
		if err := w.halfway(); err != nil {
			return err
		}
	}
	target.Balance += amount
	target.Got = append(target.Got, payment.ID) // in one write with the balance: the payment has arrived
	if err := w.store(token, target, "deposits %d", amount); err != nil {
		return err
	}
	source.Sent = nil
	return w.store(token, source, "is done")
}

// errSame means that money was to be moved from an account to itself.
var errSame = errors.New("a transfer needs two accounts")

// errElsewhere means that a former holder left a payment to an account that is not locked.
var errElsewhere = errors.New("an unfinished payment leads to another account: make a transfer between these two first")

// settle ends a transfer that a former holder of both accounts has left half done. If the payment has arrived, settle
// only removes the note of it. Otherwise the money goes back. The target account refuses the former holder, so the
// payment cannot arrive later.
func (w *worker) settle(token uint64, source, target *Account) error {
	left := source.Sent
	switch {
	case left == nil:
		return nil
	case left.To != target.Name:
		return fmt.Errorf("%s: %w: %s", source.Name, errElsewhere, left.To)
	}
	source.Sent = nil // in one write with the balance, so the money goes back once
	if slices.Contains(target.Got, left.ID) {
		return w.store(token, *source, "sees that a payment of %d has arrived", left.Amount)
	}
	source.Balance += left.Amount
	return w.store(token, *source, "takes back %d, which never arrived", left.Amount)
}

// store writes an account. The bank reports the formatted text, which says why.
func (w *worker) store(token uint64, a Account, format string, args ...any) error {
	return w.bank.store(token, a, w.who+" "+fmt.Sprintf(format, args...))
}
