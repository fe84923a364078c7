package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A mutant is one small change of one file, as an edit of its text.
type mutant struct {
	File string `json:"file"`     // from the top of the tree, with slashes
	Func string `json:"function"` // "(*waiter).due"; "" outside of all functions
	Kind string `json:"kind"`
	Old  string `json:"old"` // the lines that change, joined into one
	New  string `json:"new"` // the same lines after the change
	Nth  int    `json:"nth"` // counts mutants with the same File, Func, Old and New, from 1

	number int // in the sample, from 1
	source *source
	fn     *function // nil outside of all functions, and in Lua
	edit
}

// An edit replaces the bytes from start to end with text.
type edit struct {
	start, end int
	text       string
}

func (e edit) apply(text string) string { return text[:e.start] + e.text + text[e.end:] }

// id returns the mutant's identity. It has no line number, so it stays the same when code moves.
func (m *mutant) id() string {
	where := m.File
	if m.Func != "" {
		where += " " + m.Func
	}
	text := fmt.Sprintf("%s: %s => %s", where, m.Old, m.New)
	if m.Nth > 1 {
		text += fmt.Sprintf(" #%d", m.Nth)
	}
	return text
}

// maxShown is the maximum number of characters that an identity shows of Old, and likewise of New.
const maxShown = 160

// describe sorts mutants, which must be all mutants of s, by their place in its text. It fills in source,
// File, Old, New and Nth.
func describe(s *source, mutants []*mutant) {
	slices.SortStableFunc(mutants, func(a, b *mutant) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	seen, bare := map[mutant]int{}, s.bare()
	for _, m := range mutants {
		from := strings.LastIndexByte(s.text[:m.start], '\n') + 1
		to := len(s.text)
		if i := strings.IndexByte(s.text[m.end:], '\n'); i >= 0 {
			to = m.end + i
		}
		m.source, m.File = s, s.name
		m.Old = shown(bare[from:to])
		m.New = shown(bare[from:m.start] + m.text + bare[m.end:to])
		key := mutant{Func: m.Func, Old: m.Old, New: m.New}
		seen[key]++
		m.Nth = seen[key]
	}
}

// shown returns text on one line, cut after maxShown characters; "nothing" if it is empty.
func shown(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "nothing"
	}
	if utf8.RuneCountInString(text) > maxShown {
		text = string([]rune(text)[:maxShown]) + "…"
	}
	return text
}

// bare returns the text of s with its comments replaced by spaces.
func (s *source) bare() string {
	text := []byte(s.text)
	blank := func(start, end int) {
		for i := start; i < end; i++ {
			if text[i] != '\n' {
				text[i] = ' '
			}
		}
	}
	if s.file == nil {
		end := 0
		for _, t := range luaTokens(s.text) {
			blank(end, t.start)
			end = t.end
		}
		blank(end, len(text))
		return string(text)
	}
	for _, group := range s.file.Comments {
		blank(s.tokens.Offset(group.Pos()), s.tokens.Offset(group.End()))
	}
	return string(text)
}
