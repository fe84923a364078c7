package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// variable is the environment variable that chooses one of the mutants that are built
// together, by its number.
const variable = "REDSYNC_MUTANT"

// supportFile is the name of the file that the overlay adds to each package with mutants.
const supportFile = "mutants_support.go"

const support = `package %s

import (
	"os"
	"strconv"
)

var mutantNumber = func() int {
	n, _ := strconv.Atoi(os.Getenv(%q))
	return n
}()

var mutantTexts = map[string]map[int]string{
%s}

func mutantText(file, text string) string {
	if mutated, ok := mutantTexts[file][mutantNumber]; ok {
		return mutated
	}
	return text
}
`

// together writes to dir the overlay that builds all mutants into the same test programs. Each
// mutant is a changed copy of its function or script. When the program runs, the original
// function, or the variable of the script, picks the copy that the environment variable chooses.
func together(t *tree, mutants []*mutant, dir string) (overlay string, err error) {
	files := map[string]string{}
	for _, l := range t.libraries {
		texts, used, name := strings.Builder{}, false, ""
		for _, s := range l.sources {
			own := slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool { return m.source != s })
			used = used || len(own) > 0
			if s.file != nil {
				name = s.file.Name.Name
				files[s.path] = s.schema(own)
				continue
			}
			fmt.Fprintf(&texts, "\t%q: {\n", filepath.Base(s.path))
			for _, m := range own {
				fmt.Fprintf(&texts, "\t\t%d: %q,\n", m.number, m.apply(s.text))
			}
			texts.WriteString("\t},\n")
		}
		if used {
			files[filepath.Join(t.root, l.dir, supportFile)] = fmt.Sprintf(support, name, variable, texts.String())
		} else {
			for _, s := range l.sources {
				delete(files, s.path)
			}
		}
	}
	return writeOverlay(dir, files)
}

// alone writes the overlay with which m is built by itself.
func alone(m *mutant, dir string) (overlay string, err error) {
	return writeOverlay(dir, map[string]string{m.source.path: m.apply(m.source.text)})
}

// writeOverlay writes an overlay for go build. files holds, by path, the text that replaces the file
// there.
func writeOverlay(dir string, files map[string]string) (string, error) {
	replace := map[string]string{}
	for path, text := range files {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// embedded matches the declaration of a variable that embeds a script.
var embedded = regexp.MustCompile(`(?m)^//go:embed (\S+\.lua)\nvar (\w+) string$`)

// schema returns the text of s with a changed copy of a function for each of mutants, and with
// original functions that call the chosen copy ("mutant schemata").
func (s *source) schema(mutants []*mutant) string {
	byFunction := map[*function][]*mutant{}
	var order []*function
	for _, m := range mutants {
		if byFunction[m.fn] == nil {
			order = append(order, m.fn)
		}
		byFunction[m.fn] = append(byFunction[m.fn], m)
	}
	var edits []edit
	var copies bytes.Buffer
	for _, fn := range order {
		edits = append(edits, s.choice(fn, byFunction[fn])...)
		for _, m := range byFunction[fn] {
			start, end := s.tokens.Offset(fn.decl.Pos()), s.tokens.Offset(fn.decl.End())
			name := s.tokens.Offset(fn.decl.Name.End())
			copied := s.text[start:name] + suffix(m) + s.text[name:m.start] + m.text + s.text[m.end:end]
			fmt.Fprintf(&copies, "\n%s\n", copied)
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(b.start, a.start) })
	text := s.text
	for _, e := range edits {
		text = e.apply(text)
	}
	text = embedded.ReplaceAllString(text, "//go:embed $1\nvar ${2}Embedded string\n\nvar $2 = mutantText(\"$1\", ${2}Embedded)")
	return text + copies.String()
}

func suffix(m *mutant) string { return "Mutant" + strconv.Itoa(m.number) }

// choice returns the edits that make fn call the chosen copy. They name the parameters that have no name,
// and add a switch on the line of the opening brace, so that line numbers stay the same.
func (s *source) choice(fn *function, mutants []*mutant) (edits []edit) {
	name := func(fields *ast.FieldList) (names []string) {
		if fields == nil {
			return nil
		}
		for _, field := range fields.List {
			if len(field.Names) == 0 {
				names = append(names, fmt.Sprintf("mutantArgument%d", field.Pos()))
				at := s.tokens.Offset(field.Type.Pos())
				edits = append(edits, edit{at, at, names[len(names)-1] + " "})
			}
			for _, n := range field.Names {
				if n.Name == "_" {
					names = append(names, fmt.Sprintf("mutantArgument%d", n.Pos()))
					edits = append(edits, edit{s.tokens.Offset(n.Pos()), s.tokens.Offset(n.End()), names[len(names)-1]})
				} else {
					names = append(names, n.Name)
				}
			}
		}
		return names
	}
	d := fn.decl
	called := d.Name.Name
	if receiver := name(d.Recv); len(receiver) > 0 {
		called = receiver[0] + "." + called
	}
	args, types := name(d.Type.Params), name(d.Type.TypeParams)
	if n := len(args); n > 0 {
		if _, ok := d.Type.Params.List[len(d.Type.Params.List)-1].Type.(*ast.Ellipsis); ok {
			args[n-1] += "..."
		}
	}
	var text strings.Builder
	text.WriteString(" switch mutantNumber { ")
	for _, m := range mutants {
		call := called + suffix(m)
		if len(types) > 0 {
			call += "[" + strings.Join(types, ", ") + "]"
		}
		call += "(" + strings.Join(args, ", ") + ")"
		if d.Type.Results.NumFields() > 0 {
			fmt.Fprintf(&text, "case %d: return %s; ", m.number, call)
		} else {
			fmt.Fprintf(&text, "case %d: %s; return; ", m.number, call)
		}
	}
	text.WriteString("}; ")
	at := s.tokens.Offset(d.Body.Lbrace) + 1
	return append(edits, edit{at, at, text.String()})
}

// build builds the tests of the package in dir of the tree, and returns the path of the program.
func (t *tree) build(ctx context.Context, dir, into string, flags ...string) (string, error) {
	program := filepath.Join(into, "test-"+strings.NewReplacer("/", "-", ".", "root").Replace(dir))
	args := append([]string{"test", "-c", "-vet=off", "-o", program}, flags...)
	_, err := t.goTool(ctx, append(args, "./"+dir)...)
	return program, err
}
