package redsync

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Sequencer proves a lock to others: the holder sends it to a server along with a request, and the server asks
// Redsync.Current, or compares tokens. With Mutex.Detach and WithSequencer, it passes a lock to another process.
//
// A SEQUENCER CONTAINS THE LOCK'S VALUE: anybody who has it can extend and release the lock. String and packages such
// as encoding/json write it. Packages fmt and log/slog show the name and the token alone, except inside another value.
//
// Two Sequencers of one lock are equal by ==, unless it was downgraded, or another reader has left it, in between.
type Sequencer struct {
	Name  string
	Token uint64 // 0 without WithFencing
	Value string

	// Mode says how the lock is held; "" is a plain lock. Leave it as it is.
	Mode string
}

const (
	modePlain   = ""        // exclusive
	modeNames   = "names"   // exclusive; then "-" and each name's length in bytes
	modeRead    = "read"    // shared
	modeReaders = "readers" // shared by others of the process: nobody can adopt it
	modePermits = "permits" // then n and the slots: see permitsMode
)

// sequencerOf returns the Sequencer of h. Its receiver can release h, so h must not be handed over any more.
func sequencerOf(h *lease.Lease) Sequencer {
	c := h.Claim()
	if p, ok := c.(*claim.Permit); ok {
		return Sequencer{Name: p.Name(), Value: c.Value(), Mode: permitsMode(p.Permits.Permits(), p.Slots())}
	}
	s := sequencerOfNames(c.Lines(), h.Token(), c.Value())
	switch {
	case !c.Shares():
	case h.IsAlone(false):
		s.Mode = modeRead
	default:
		s.Mode = modeReaders
	}
	return s
}

func sequencerOfNames(names []string, token uint64, value string) Sequencer {
	s := Sequencer{Name: joinNames(names), Token: token, Value: value}
	if len(names) < 2 {
		return s
	}
	s.Mode = modeNames
	for _, name := range names {
		s.Mode += "-" + strconv.Itoa(len(name))
	}
	return s
}

// Names returns the names that the hold of s covers, nil for the zero Sequencer.
func (s Sequencer) Names() []string {
	if names, ok := s.cut(); ok {
		return names
	}
	if s.Name == "" {
		return nil
	}
	return []string{s.Name}
}

func (s Sequencer) isUnder(prefix string) bool {
	return !slices.ContainsFunc(s.Names(), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}

// cut returns the names of a lock on several, false for another lock or if they do not fit the lengths.
func (s Sequencer) cut() (names []string, ok bool) {
	lengths, ok := lengthsOf(s.Mode)
	if !ok {
		return nil, false
	}
	rest := s.Name
	for i, n := range lengths {
		if i > 0 {
			if rest, ok = strings.CutPrefix(rest, script.NamesSeparator); !ok {
				return nil, false
			}
		}
		if n > len(rest) {
			return nil, false
		}
		names, rest = append(names, rest[:n]), rest[n:]
	}
	return names, rest == ""
}

func lengthsOf(mode string) (lengths []int, ok bool) {
	numbers, ok := numbersIn(mode, modeNames)
	return numbers, ok && len(numbers) > 1
}

// numbersIn returns the numbers of a mode that is a word and numbers, each behind a hyphen.
func numbersIn(mode, word string) (numbers []int, ok bool) {
	parts := strings.Split(mode, "-") // no part has a minus
	for _, part := range parts[1:] {
		n, err := strconv.Atoi(part)
		if err != nil || strconv.Itoa(n) != part {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, parts[0] == word
}

// permitsMode returns permits-3-0-2 for slots 0 and 2 of three.
func permitsMode(n int, slots script.Slots) string {
	mode := modePermits + "-" + strconv.Itoa(n)
	for slot := range slots.All() {
		mode += "-" + strconv.Itoa(slot)
	}
	return mode
}

func parsePermitsMode(mode string) (n int, slots script.Slots, ok bool) {
	numbers, ok := numbersIn(mode, modePermits)
	if !ok || len(numbers) < 2 || numbers[0] > script.MaxPermits {
		return 0, slots, false
	}
	for _, slot := range numbers[1:] {
		if slot >= numbers[0] {
			return 0, slots, false
		}
		slots = slots.With(slot)
	}
	return numbers[0], slots, permitsMode(numbers[0], slots) == mode
}

const (
	sequencerForm     = "redsync1" // a plain lock: then name, token and value
	sequencerModeForm = "redsync2" // others: then mode, name, token and value
)

// String returns s as a text of letters, digits, -, _ and dots. It contains the value, a secret.
func (s Sequencer) String() string {
	form := sequencerForm
	if s.Mode != modePlain {
		form = sequencerModeForm + "." + s.Mode
	}
	encode := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{
		form, encode([]byte(s.Name)), strconv.FormatUint(s.Token, 10), encode([]byte(s.Value)),
	}, ".")
}

// ParseSequencer reads what Sequencer.String returns.
func ParseSequencer(text string) (Sequencer, error) {
	parts, mode := strings.Split(text, "."), modePlain
	switch {
	case len(parts) == 4 && parts[0] == sequencerForm:
	case len(parts) == 5 && parts[0] == sequencerModeForm:
		mode, parts = parts[1], parts[1:]
		_, names := lengthsOf(mode)
		_, _, permits := parsePermitsMode(mode)
		if !names && !permits && mode != modeRead && mode != modeReaders {
			return Sequencer{}, errors.New("redsync: no sequencer: this version does not know the mode of the lock")
		}
	default:
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: it must be %s.name.token.value or %s.mode.name.token.value",
			sequencerForm, sequencerModeForm)
	}
	name, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: its name: %w", err)
	}
	token, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: its token: %w", err)
	}
	value, err := base64.RawURLEncoding.DecodeString(parts[3])
	if err != nil {
		return Sequencer{}, fmt.Errorf("redsync: no sequencer: its value: %w", err)
	}
	s := Sequencer{Name: string(name), Token: token, Value: string(value), Mode: mode}
	if s.String() != text {
		return Sequencer{}, errors.New("redsync: no sequencer: it is not as String writes it")
	}
	return s, nil
}

// MarshalText returns the text of String, with the value.
func (s Sequencer) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets s to what ParseSequencer returns. After an error s is as before.
func (s *Sequencer) UnmarshalText(text []byte) error {
	parsed, err := ParseSequencer(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

func joinNames(names []string) string { return strings.Join(names, script.NamesSeparator) }

func distinct(names []string) []string {
	all := slices.Clone(names)
	slices.Sort(all)
	return slices.Compact(all)
}

// Format writes the name and the token, for every verb, without the value.
func (s Sequencer) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "redsync.Sequencer(%s, token %d)", quoted(s.Name), s.Token)
}

// LogValue returns the name and the token, for package slog, without the value.
func (s Sequencer) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", journal.CutName(s.Name)), slog.Uint64("token", s.Token))
}
