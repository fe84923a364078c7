package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/seed14bd9ef4/redsync/fencing"
)

// An Account is what the bank stores for an account. A write replaces all of it in one step, like a row of a database.
type Account struct {
	Name    string
	Balance int
	Sent    *Payment // the payment that left the account and may not have arrived; nil if there is none
	Got     []string // the payments that have arrived
}

// A Payment is on its way to another account.
type Payment struct {
	ID, To string
	Amount int
}

// A Bank keeps accounts, each behind a guard: it refuses a request whose token is older than one that the account has
// seen. It runs in the process of the program; workers reach it through a loopback port.
type Bank struct {
	guards fencing.Guards
	say    func(format string, args ...any)

	mu       sync.Mutex
	accounts map[string]Account
	refused  []error
}

// A Request looks at an account, or stores one.
type Request struct {
	Token   uint64
	What    string // for the bank's report; "" is not reported
	Account Account
}

const (
	first, second = "account:1", "account:2"

	// balance is what each account has at first.
	balance = 100
)

// newBank returns a bank with two accounts. The bank calls say for each line of its report.
func newBank(say func(format string, args ...any)) *Bank {
	return &Bank{say: say, accounts: map[string]Account{
		first: {Name: first, Balance: balance}, second: {Name: second, Balance: balance},
	}}
}

// Look returns the account that the request names.
func (b *Bank) Look(r Request, found *Account) error {
	return b.admit(r, func() {
		*found = b.accounts[r.Account.Name]
		b.report("%s, token %d", r.What, r.Token)
	})
}

// Store replaces an account.
func (b *Bank) Store(r Request, _ *Account) error {
	return b.admit(r, func() {
		b.accounts[r.Account.Name] = r.Account
		b.report("%s: %s has %d", r.What, r.Account.Name, r.Account.Balance)
	})
}

// admit does what a request wants, unless its token is stale. Then admit records and reports the refusal.
func (b *Bank) admit(r Request, do func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.guards.For(r.Account.Name).Do(r.Token, func() error { do(); return nil })
	if err != nil {
		b.refused = append(b.refused, err)
		b.report("%s: refused: %v", r.What, err)
	}
	return err
}

// report says what a request has done, unless its What is empty.
func (b *Bank) report(format, what string, args ...any) {
	if what != "" {
		b.say(format, append([]any{what}, args...)...)
	}
}

// audit returns an error unless the accounts have this sum, no payment is on its way, and the bank has refused this
// number of requests, all of them because their token was stale.
func (b *Bank) audit(sum, refused int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.accounts {
		sum -= a.Balance
		if a.Sent != nil {
			return fmt.Errorf("%s: a payment of %d is on its way", a.Name, a.Sent.Amount)
		}
	}
	stale := !slices.ContainsFunc(b.refused, func(err error) bool { return !errors.Is(err, fencing.ErrStale) })
	switch {
	case sum != 0:
		return fmt.Errorf("%d are missing", sum)
	case len(b.refused) != refused || !stale:
		return fmt.Errorf("the bank refused %v, want %d stale tokens", b.refused, refused)
	}
	return nil
}
