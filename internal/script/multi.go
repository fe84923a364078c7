package script

import "fmt"

// Names is a set of the names of one claim, as bits.
type Names uint64

// MaxNames limits Names.
const MaxNames = 64

// NamesSeparator stands between the names of a lock on several.
const NamesSeparator = ", "

// Has reports whether name i is in n.
func (n Names) Has(i int) bool { return n>>i&1 != 0 }

// ParseEnteredNames reads a reply to Enter about several names.
func ParseEnteredNames(reply any) (Entered, error) {
	if reply == Granted {
		return Entered{}, nil
	}
	if parts, ok := reply.([]any); ok && len(parts) == 4 {
		e, err := ParseEntered(parts[:3])
		e.By, ok = namesOf(parts[3])
		if err == nil && ok && (e.Wait == Granted) == (e.By == 0) {
			return e, nil
		}
	}
	return Entered{}, fmt.Errorf("redsync: odd answer to an acquire: %s", Describe(reply))
}

// A Released is what a node answers to Release about several names.
type Released struct {
	Found  int64 // Mine if all keys had the value, Other if some had another, else Missing
	First  Names // a waiter of the caller's process may go on
	Others Names // a waiter of another process has been told, or is the next after First
}

// ParseReleasedNames reads a reply to Release about several names.
func ParseReleasedNames(reply any) (Released, error) {
	parts, ok := reply.([]any)
	if !ok {
		parts = []any{reply, []any{}, []any{}}
	}
	if len(parts) == 3 {
		found, isFound := parts[0].(int64)
		first, areFirst := namesOf(parts[1])
		others, areOthers := namesOf(parts[2])
		if isFound && found >= Missing && found <= Other && areFirst && areOthers {
			return Released{found, first, others}, nil
		}
	}
	return Released{}, fmt.Errorf("redsync: odd answer to a release: %s", Describe(reply))
}

// namesOf returns the names that an element of a reply stands for: scripts count from 1.
func namesOf(element any) (names Names, ok bool) {
	elements, ok := element.([]any)
	for _, e := range elements {
		i, isName := e.(int64)
		if !isName || i < 1 || i > MaxNames {
			return 0, false
		}
		names |= 1 << (i - 1)
	}
	return names, ok
}
