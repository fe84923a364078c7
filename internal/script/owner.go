package script

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// This file is about values that say who holds the lock (WithOwner):
//
//	26 random characters, "~", the process (16 digits), a space, the time (13 digits), a space, the label
//
// The time is in milliseconds since 1970. Scripts take any text as a value.

// An Owner is what a value says of its holder.
type Owner struct {
	Label   string
	Process string    // its 16 digits
	Since   time.Time // when the attempt that acquired the lock began, by the holder's clock
}

const (
	randomLength  = 26 // of crypto/rand.Text
	processLength = 16 // of Process.String
	sinceLength   = 13
	ownerLength   = randomLength + len("~") + processLength + len(" ") + sinceLength + len(" ") // without the label

	maxSince = 1e13 - 1 // in milliseconds: the year 2286

	// MaxLabel is how many bytes a label may have.
	MaxLabel = 128
)

// OwnedValue returns a value that says its owner, from a text of crypto/rand.Text and a label that CheckLabel accepts.
// A time before 1970 or after 2286 is cut.
func OwnedValue(random string, p Process, at time.Time, label string) string {
	var room [ownerLength + MaxLabel]byte // so that only the result is allocated
	b := append(room[:0], random...)
	b = append(b, '~')
	b = append(b, p.String()...)
	b = strconv.AppendInt(b, maxSince+1+min(max(at.UnixMilli(), 0), maxSince), 10) // 1, and the 13 digits
	b[len(b)-sinceLength-1] = ' '
	b = append(b, ' ')
	b = append(b, label...)
	return string(b)
}

// OwnerOf returns what value says of its owner, false unless it has exactly the form of OwnedValue.
func OwnerOf(value string) (Owner, bool) {
	if len(value) <= ownerLength || value[randomLength] != '~' {
		return Owner{}, false
	}
	random, rest := value[:randomLength], value[randomLength+1:]
	process, rest := rest[:processLength], rest[processLength:]
	since, label := rest[1:1+sinceLength], rest[1+sinceLength:]
	if strings.Trim(random, base32) != "" || rest[0] != ' ' || label[0] != ' ' || !isNumber(process) || !isNumber(since) {
		return Owner{}, false
	}
	if label = label[1:]; CheckLabel(label) != nil {
		return Owner{}, false
	}
	millis, _ := strconv.ParseInt(since, 10, 64) // so many digits fit
	return Owner{label, process, time.UnixMilli(millis)}, true
}

// IsOf reports whether value says process p.
func IsOf(value string, p Process) bool {
	o, ok := OwnerOf(value)
	return ok && o.Process == p.String()
}

// IDOf tells values apart without showing them.
func IDOf(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:4])
}

// Forced begins the message that a lock of the process was released by force, before the IDOf its value. A lock's name
// may look like it, so nobody relies on it.
const Forced = "forced "

const (
	base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // the alphabet of crypto/rand.Text
	digits = "0123456789"
)

func isNumber(text string) bool { return strings.Trim(text, digits) == "" }

// LabelRange says what CheckLabel accepts.
const LabelRange = "1 to 128 bytes of UTF-8, without control characters, invisible format characters, and spaces at its ends"

// CheckLabel returns what is wrong with a label, nil if nothing is.
//
// People read labels in terminals. So nothing in one acts on the terminal, breaks the line (U+2028) or turns the text
// around it (U+202E), and nothing is invisible, such as U+200B or a space at an end. That also refuses the joiners
// U+200C and U+200D, which some scripts use inside words.
func CheckLabel(label string) error {
	switch {
	case label == "":
		return errors.New("it is empty")
	case len(label) > MaxLabel:
		return fmt.Errorf("it has %d bytes", len(label))
	case !utf8.ValidString(label):
		return errors.New("it is not UTF-8")
	}
	if at := strings.IndexFunc(label, isHidden); at >= 0 {
		r, _ := utf8.DecodeRuneInString(label[at:])
		return fmt.Errorf("it has the character %U", r)
	}
	if strings.TrimSpace(label) != label {
		return errors.New("it has a space at an end")
	}
	return nil
}

// isHidden reports whether r acts on the text around it, or does not show.
func isHidden(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
