package script

import "strings"

// A WrongType is what read.lua says of a key that is not the library's.
type WrongType struct {
	Key  string // a long one is cut, and ends in "..."
	Type string // such as "list"; "" if the user may not ask for it
}

// WrongTypeIn returns what the text of an error says, zero if it is not from read.lua.
func WrongTypeIn(text string) WrongType {
	_, text, _ = strings.Cut(text, "WRONGTYPE the ")
	for _, what := range []string{"key ", "queue ", "fencing register "} {
		key, found := strings.CutPrefix(text, what)
		end := strings.LastIndex(key, isA)
		if !found || end < 0 {
			continue
		}
		is := key[end+len(isA):]
		if is == untold {
			is = ""
		}
		return WrongType{key[:end], is}
	}
	return WrongType{}
}

const (
	isA    = " is a "
	untold = "key of another type" // for a type that the user may not ask for
)
