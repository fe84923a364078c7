package main

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"time"
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
func wordsOf(line string) (words []string) {
	for word := range strings.FieldsSeq(line) {
		if strings.HasPrefix(word, `"`) {
			word = must(strconv.Unquote(word))
		}
		words = append(words, word)
	}
	return words
}

// spanOf returns the duration in a cell, of an empty one 0.
func spanOf(cell string) time.Duration {
	return must(time.ParseDuration(cmp.Or(cell, "0")))
}

// textOf returns a file.
func textOf(path string) string {
	return string(must(os.ReadFile(path)))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
