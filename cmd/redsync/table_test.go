package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cellsOf returns the cells of a table: a line is a row, and | stands between cells.
func cellsOf(text string) (rows [][]string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		var cells []string
		for cell := range strings.SplitSeq(line, "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	return rows
}

// wordsOf returns the words of a command line. A word in quotes is one of Go.
func wordsOf(t *testing.T, line string) (words []string) {
	t.Helper()
	for word := range strings.FieldsSeq(line) {
		if strings.HasPrefix(word, `"`) {
			text, err := strconv.Unquote(word)
			require.NoError(t, err, word)
			word = text
		}
		words = append(words, word)
	}
	return words
}

// spanOf returns the duration in a cell, of an empty one 0.
func spanOf(t *testing.T, cell string) time.Duration {
	t.Helper()
	if cell == "" {
		return 0
	}
	d, err := time.ParseDuration(cell)
	require.NoError(t, err)
	return d
}

// textOf returns a file.
func textOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
