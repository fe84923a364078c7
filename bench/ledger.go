package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A ledger is a file with accounts that several processes change. It does not prevent two processes from changing an
// account at the same time: locks must do that. It notices when they fail to.
type ledger struct{ file *os.File }

// An account is one record of a ledger.
type account struct {
	Balance int64
	Holder  int64 // who works on the account; 0 means nobody
}

// accountSize is the length of a record in the file.
const accountSize = 16

// opening is the balance of each account at first.
const opening = 1000

// createLedger creates a ledger in dir.
func createLedger(dir string, accounts int) (*ledger, error) {
	file, err := os.CreateTemp(dir, "ledger-")
	if err != nil {
		return nil, err
	}
	l := &ledger{file}
	for i := range accounts {
		if err := l.write(i, account{Balance: opening}); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	return l, nil
}

// openLedger opens the ledger that createLedger has created at path.
func openLedger(path string) (*ledger, error) {
	file, err := os.OpenFile(filepath.Clean(path), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &ledger{file}, nil
}

func (l *ledger) path() string { return l.file.Name() }
func (l *ledger) close() error { return l.file.Close() }

func (l *ledger) read(i int) (account, error) {
	var b [accountSize]byte
	if _, err := l.file.ReadAt(b[:], int64(i)*accountSize); err != nil {
		return account{}, fmt.Errorf("account %d: %w", i, err)
	}
	var a account
	_, err := binary.Decode(b[:], binary.LittleEndian, &a)
	return a, err
}

func (l *ledger) write(i int, a account) error {
	b, err := binary.Append(make([]byte, 0, accountSize), binary.LittleEndian, a)
	if err != nil {
		return err
	}
	_, err = l.file.WriteAt(b, int64(i)*accountSize)
	return err
}

// readAll reads the first accounts with one read of the file.
func (l *ledger) readAll(accounts int) ([]account, error) {
	b := make([]byte, accounts*accountSize)
	if _, err := l.file.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("%d accounts: %w", accounts, err)
	}
	all := make([]account, accounts)
	_, err := binary.Decode(b, binary.LittleEndian, all)
	return all, err
}

// heldAtOnce returns how many of the first accounts are held at the same moment. A read of the file takes time, so the
// accounts that one read finds held may have been held at different moments. Therefore heldAtOnce reads twice and
// counts the accounts that are held, with the same balance, both times. These were all held between the two reads,
// provided that each new holder of an account changes its balance.
func (l *ledger) heldAtOnce(accounts int) (int, error) {
	first, err := l.readAll(accounts)
	if err != nil {
		return 0, err
	}
	second, err := l.readAll(accounts)
	if err != nil {
		return 0, err
	}
	n := 0
	for i, a := range first {
		if a.Holder != 0 && a == second[i] {
			n++
		}
	}
	return n, nil
}

// errTwoHolders says that two holders worked on an account at the same time.
var errTwoHolders = errors.New("an account had two holders")

// A transfer moves an amount from one account to another. Its holder must not be 0, nor the holder of another
// transfer that may be under way at the same time.
type transfer struct {
	from, to       int
	amount, holder int64

	balances [2]int64 // as begin has read them
}

// begin marks both accounts as held and reads their balances.
func (t *transfer) begin(l *ledger) error {
	for side, i := range [2]int{t.from, t.to} {
		a, err := l.read(i)
		if err != nil {
			return err
		}
		if a.Holder != 0 {
			return fmt.Errorf("%w: account %d, %d and %d", errTwoHolders, i, a.Holder, t.holder)
		}
		a.Holder = t.holder
		if err := l.write(i, a); err != nil {
			return err
		}
		t.balances[side] = a.Balance
	}
	return nil
}

// end writes the new balances, computed from those that begin has read, and frees both accounts. So if another
// transfer has changed an account in between, that change is lost, and audit notices it.
func (t *transfer) end(l *ledger) error {
	for side, i := range [2]int{t.from, t.to} {
		a, err := l.read(i)
		if err != nil {
			return err
		}
		if a.Holder != t.holder {
			return fmt.Errorf("%w: account %d, %d and %d", errTwoHolders, i, a.Holder, t.holder)
		}
		change := t.amount
		if side == 0 {
			change = -t.amount
		}
		if err := l.write(i, account{Balance: t.balances[side] + change}); err != nil {
			return err
		}
	}
	return nil
}

// counts returns an error unless account 0 has the opening balance plus 1 for each of the writes, and nobody holds it.
// Nobody may use the ledger meanwhile.
func (l *ledger) counts(writes int) error {
	a, err := l.read(0)
	if want := (account{Balance: opening + int64(writes)}); err == nil && a != want {
		err = fmt.Errorf("the account is %+v, want %+v", a, want)
	}
	return err
}

// audit returns an error if money has appeared or is gone, or if an account is held. Nobody may use the ledger
// meanwhile.
func (l *ledger) audit(accounts int) error {
	var sum int64
	for i := range accounts {
		a, err := l.read(i)
		if err != nil {
			return err
		}
		if a.Holder != 0 {
			return fmt.Errorf("account %d is still held by %d", i, a.Holder)
		}
		sum += a.Balance
	}
	if want := int64(accounts) * opening; sum != want {
		return fmt.Errorf("the accounts hold %d in all, want %d", sum, want)
	}
	return nil
}
