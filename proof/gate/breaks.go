package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// breaks reads changes that break programs, a line of apidiff each, and returns an error for those that the changelog does not
// name above the section of the tag.
func breaks(changes io.Reader, changelog, tag string, out io.Writer) error {
	text, err := os.ReadFile(changelog) //nolint:gosec // the gate names it
	if err != nil {
		return err
	}
	section := regexp.MustCompile(`(?m)^## \[?` + regexp.QuoteMeta(strings.TrimPrefix(tag, "v")) + `\]?( |$)`).FindIndex(text)
	if section == nil {
		return fmt.Errorf("%s has no section of %s", changelog, tag)
	}
	var unnamed []string
	lines := bufio.NewScanner(changes)
	for lines.Scan() {
		change := strings.TrimPrefix(lines.Text(), "- ")
		name := nameOf(change)
		switch {
		case strings.Contains(change, "/examples/"): // programs, which nobody imports
		case regexp.MustCompile("`" + regexp.QuoteMeta(name) + `\b`).Match(text[:section[0]]):
			_, _ = fmt.Fprintf(out, "named: %s\n", change)
		default:
			unnamed = append(unnamed, fmt.Sprintf("`%s`: %s", name, change))
		}
	}
	if err := lines.Err(); err != nil || len(unnamed) == 0 {
		return err
	}
	return fmt.Errorf("since %s these changes break programs: undo them, or say what to do in %s, above the section of that version:\n%s",
		tag, changelog, strings.Join(unnamed, "\n"))
}

var noName = regexp.MustCompile(`^package \S*?/redsync/|\(\*?|\)|\[.*?\]|^\./(.*/)?`)

// nameOf returns what a changelog calls the object of a change: Mutex.Lock for "(*Mutex).Lock: removed", pool.New for
// "./pool.New: changed from ...".
func nameOf(change string) string {
	object, _, _ := strings.Cut(change, ": ")
	object, _, _ = strings.Cut(object, ",")
	return noName.ReplaceAllString(object, "")
}
