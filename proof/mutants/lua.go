package main

import (
	"slices"
	"strconv"
	"strings"
)

// A luaToken is a word, a number, a string or an operator, but not a comment.
type luaToken struct {
	text       string
	start, end int
	first      bool // it is the first token of its line
}

// luaTokens splits a script into its tokens. It does not know Lua's long strings and long
// comments ([[...]]), because our scripts have none.
func luaTokens(text string) (tokens []luaToken) {
	first := true
	for i := 0; i < len(text); {
		end := i + 1
		switch c := text[i]; {
		case c == '\n':
			first = true
			i = end
			continue
		case c == ' ' || c == '\t':
			i = end
			continue
		case strings.HasPrefix(text[i:], "--"):
			i = lineEnd(text, i)
			continue
		case c == '\'' || c == '"':
			for end < len(text) && text[end] != c {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end++
		case isWord(c):
			for end < len(text) && (isWord(text[end]) || c <= '9' && text[end] == '.') {
				end++
			}
		default:
			for _, op := range []string{"...", "..", "==", "~=", "<=", ">="} {
				if strings.HasPrefix(text[i:], op) {
					end = i + len(op)
					break
				}
			}
		}
		tokens = append(tokens, luaToken{text[i:end], i, end, first})
		first, i = false, end
	}
	return tokens
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// lineEnd returns where the line of text[at] ends.
func lineEnd(text string, at int) int {
	if i := strings.IndexByte(text[at:], '\n'); i >= 0 {
		return at + i
	}
	return len(text)
}

var luaSwaps = map[string]string{
	"==": "~=", "~=": "==", "and": "or", "or": "and", "+": "-", "-": "+", "*": "/", "/": "*",
	"max": "min", "min": "max", "true": "false", "false": "true",
}

var luaBoundaries = map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}

// readLua finds the mutants of a script.
func readLua(s *source) {
	w := &luaWalk{source: s, tokens: luaTokens(s.text)}
	for i, t := range w.tokens {
		w.enter(i)
		switch t.text {
		case "if", "elseif":
			w.condition(i, "then")
		case "while":
			w.condition(i, "do")
		}
		if to, ok := luaSwaps[t.text]; ok && !w.isSign(i) {
			w.add("swap", t.start, t.end, to)
		}
		if to, ok := luaBoundaries[t.text]; ok {
			w.add("boundary", t.start, t.end, to)
		}
		if value, err := strconv.Atoi(t.text); err == nil {
			w.add("constant", t.start, t.end, strconv.Itoa(value+1))
		}
		if w.begins(i) {
			w.statement(i)
		}
	}
	describe(s, s.mutants)
}

type luaWalk struct {
	source *source
	tokens []luaToken
	fn     string // the function that the walk is in
	depth  int    // how many blocks of fn are open, including fn itself
}

func (w *luaWalk) add(kind string, start, end int, text string) {
	w.source.mutants = append(w.source.mutants, &mutant{Kind: kind, Func: w.fn, edit: edit{start, end, text}})
}

// at returns the text of the i-th token, "" if there is none.
func (w *luaWalk) at(i int) string {
	if i < 0 || i >= len(w.tokens) {
		return ""
	}
	return w.tokens[i].text
}

// enter keeps track of the function that contains token i. Our scripts nest no functions.
func (w *luaWalk) enter(i int) {
	switch w.at(i) {
	case "function":
		w.fn, w.depth = w.at(i+1), 1
	case "if", "do": // the do of while and for as well
		w.depth++
	case "end":
		if w.depth--; w.depth == 0 {
			w.fn = ""
		}
	}
}

// isSign reports whether token i is a minus sign with one operand.
func (w *luaWalk) isSign(i int) bool {
	before := w.at(i - 1)
	return w.at(i) == "-" && (slices.Contains([]string{"=", "(", ",", "return", "{", ""}, before) || luaSwaps[before] != "")
}

// condition mutates the condition between token i and the next token whose text is end, which
// is "then" or "do".
func (w *luaWalk) condition(i int, end string) {
	last := i
	for w.at(last+1) != end {
		last++
	}
	from, to := w.tokens[i+1].start, w.tokens[last].end
	cond := w.source.text[from:to]
	w.add("negate", from, to, "not ("+cond+")")
	w.add("never", from, to, "false and ("+cond+")")
	if end == "then" {
		w.add("always", from, to, "true or ("+cond+")")
	}
}

// begins reports whether a statement begins at token i.
func (w *luaWalk) begins(i int) bool {
	switch w.at(i - 1) {
	case "then", "do", "else":
		return true
	}
	return w.tokens[i].first && (i == 0 || w.closes(i-1))
}

// closes reports whether an expression or a statement may end with token i.
func (w *luaWalk) closes(i int) bool {
	switch t := w.at(i); t {
	case "and", "or", "not", "return":
		return false
	default:
		c := t[len(t)-1]
		return isWord(c) || strings.IndexByte(`)]}'"`, c) >= 0
	}
}

// statement drops the call or the assignment that begins at token i.
func (w *luaWalk) statement(i int) {
	switch w.at(i) {
	case "local", "return", "if", "while", "for", "function", "end", "else", "elseif":
		return
	}
	last, open := i, 0
	for last+1 < len(w.tokens) {
		next := w.tokens[last+1]
		if open == 0 && (slices.Contains([]string{"end", "else", "elseif"}, next.text) || next.first && w.closes(last)) {
			break
		}
		switch next.text {
		case "(", "{", "[", "function", "if", "do": // the last three in a function that is assigned
			open++
		case ")", "}", "]", "end":
			open--
		}
		last++
	}
	w.add("drop", w.tokens[i].start, w.tokens[last].end, "")
}
