package journal

import (
	"fmt"
	"unicode/utf8"
)

// maxShown is how many bytes of a name texts show.
const maxShown = 200

// Cut returns the beginning of a long name and a text of its length, or a short name and "".
func Cut(name string) (begin, length string) {
	end := maxShown
	if len(name) <= end {
		return name, ""
	}
	for end > maxShown-utf8.UTFMax && !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end], fmt.Sprintf("... (%d bytes)", len(name))
}

// CutName returns a name as the log shows it.
func CutName(name string) string {
	begin, length := Cut(name)
	return begin + length
}
