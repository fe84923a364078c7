package main

import (
	"errors"
	"fmt"
	"net/rpc"
	"slices"

	"github.com/seed14bd9ef4/redsync"
)

// A worker moves money between accounts of the bank.
type worker struct {
	who     string
	rs      *redsync.Redsync
	bank    *rpc.Client
	halfway func() error // called between the two halves of a transfer
}

var (
	errSame      = errors.New("a transfer needs two accounts")
	errElsewhere = errors.New("an unfinished payment leads to another account: make a transfer between these two first")
)

// settleBoth ends the transfers in both directions that former holders have left half done.
func (w *worker) settleBoth(token uint64, a, b *Account) error {
	if err := w.settle(token, a, b); err != nil {
		return err
	}
	return w.settle(token, b, a)
}

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

// look returns an account. If what is not empty, the bank reports it.
func (w *worker) look(token uint64, name, what string) (found Account, err error) {
	if what != "" {
		what = w.who + " " + what
	}
	err = w.bank.Call("Bank.Look", Request{Token: token, What: what, Account: Account{Name: name}}, &found)
	return found, err
}

// store replaces an account. The bank reports the formatted text, which says why.
func (w *worker) store(token uint64, a Account, format string, args ...any) error {
	what := w.who + " " + fmt.Sprintf(format, args...)
	return w.bank.Call("Bank.Store", Request{Token: token, What: what, Account: a}, new(Account))
}
