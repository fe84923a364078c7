package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// tables are the tables of a report or of a page, by the headings above them. A table is its rows, the titles of the
// columns first.
type tables map[string][][]string

// readTables reads the tables of a Markdown text.
func readTables(text string) tables {
	t := make(tables)
	heading := ""
	for line := range strings.Lines(text) {
		heading = headingOf(line, heading)
		if fields := fieldsOf(line); fields != nil && !isRule(fields) {
			t[heading] = append(t[heading], fields)
		}
	}
	return t
}

// headingOf returns the heading that holds from line on.
func headingOf(line, before string) string {
	if title := strings.TrimLeft(line, "#"); title != line {
		return strings.TrimSpace(title)
	}
	return before
}

// fieldsOf returns the fields of a row, and nil if line is no row.
func fieldsOf(line string) []string {
	inside, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !isRow {
		return nil
	}
	fields := strings.Split(strings.TrimSuffix(inside, "|"), "|")
	for i, field := range fields {
		fields[i] = strings.TrimSpace(field)
	}
	return fields
}

// isRule tells whether fields are the rule between the titles of a table and its rows.
func isRule(fields []string) bool { return strings.Trim(fields[0], ":-") == "" && fields[0] != "" }

// find returns the field of a column, in the only row that has the given fields in the columns named by titles.
func (t tables) find(heading string, titles, fields []string, column string) (string, error) {
	var found []string
	for i, row := range t[heading] {
		at := slices.Index(t[heading][0], column)
		if at < 0 {
			return "", fmt.Errorf("%s has no column %q", heading, column)
		}
		if i > 0 && hasFields(t[heading][0], row, titles, fields) {
			found = append(found, row[at])
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%s has %d rows %q, not one", heading, len(found), fields)
	}
	return found[0], nil
}

func hasFields(head, row, titles, fields []string) bool {
	for i, title := range titles {
		if at := slices.Index(head, title); at < 0 || row[at] != fields[i] {
			return false
		}
	}
	return true
}

// figure returns a figure of the report. It returns false if the report does not have it.
func (t tables) figure(at id, column string) (float64, bool) {
	titles, fields := []string{"goroutines", "library"}, []string{strconv.Itoa(at.Goroutines), at.Library}
	if at.Variant != "" {
		titles, fields = append(titles, t[at.Scene][0][0]), append(fields, at.Variant)
	}
	text, err := t.find(at.Scene, titles, fields, column)
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

// fill returns page with the figures of the report t in its tables. A table of the page stands under the heading of a
// scene. It has some columns of the report, with the same titles, and some rows. The columns up to the library say
// which row it is; all others are filled.
func (t tables) fill(page string) (string, error) {
	var b strings.Builder
	var titles []string // of the table that is being filled
	heading := ""
	for line := range strings.Lines(page) {
		heading = headingOf(line, heading)
		fields := fieldsOf(line)
		switch {
		case fields == nil || t[heading] == nil:
			titles = nil
		case titles == nil:
			titles = fields
		case !isRule(fields):
			if err := t.fillRow(heading, titles, fields); err != nil {
				return "", err
			}
			line = "| " + strings.Join(fields, " | ") + " |\n"
		}
		b.WriteString(line)
	}
	return b.String(), nil
}

func (t tables) fillRow(heading string, titles, fields []string) (err error) {
	known := slices.Index(titles, "library") + 1
	for i := known; i < len(titles) && err == nil; i++ {
		fields[i], err = t.find(heading, titles[:known], fields[:known], titles[i])
	}
	return err
}
