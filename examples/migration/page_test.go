package main

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// page is the page for those who move from redsync v4.
const page = "../../docs/from-redsync-v4.md"

// block returns the only code block of the page in that language.
func block(t *testing.T, language string) string {
	text := read(t, page)
	require.Equal(t, 1, strings.Count(text, "```"+language+"\n"))
	_, rest, _ := strings.Cut(text, "```"+language+"\n")
	body, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)
	return body
}

func read(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// The lines that the page removes are those of the program that change, and so are the lines that it adds.
func TestPageShowsTheLinesThatChange(t *testing.T) {
	before, after := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		maps.Copy(before, lines(read(t, "testdata/"+file+".txt")))
		maps.Copy(after, lines(read(t, file)))
	}
	var want, shown []string
	for line := range before {
		if !after[line] {
			want = append(want, "-"+line)
		}
	}
	for line := range after {
		if !before[line] {
			want = append(want, "+"+line)
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(block(t, "diff")), "\n") {
		if line != "" {
			shown = append(shown, line)
		}
	}
	assert.ElementsMatch(t, want, shown)
}

func lines(text string) map[string]bool {
	set := map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		set[line] = true
	}
	return set
}
