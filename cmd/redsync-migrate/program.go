package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/packages"
)

// program is what one run looks at.
type program struct {
	dir string
	out io.Writer

	packages []*packages.Package
	seen     map[string]bool // the files that were looked at, or are named as not looked at
	patterns []string

	lines   []line
	said    map[line]bool
	named   map[string]bool // the files that do not compile
	left    int
	changed map[string][2][]byte // before and after, by file
	blocked bool                 // a file to move does not compile
	moves   bool                 // the program has files to move
	clients bool                 // the program has pools of go-redis
}

// line is one line of the report.
type line struct {
	file      string
	line, col int
	weight    weight
	text      string
}

func (p *program) say(l line) {
	if l.weight == fine || p.said[l] {
		return
	}
	p.said[l] = true
	p.lines = append(p.lines, l)
}

// load loads the packages once for each list of tags.
func (p *program) load(ctx context.Context, tags, patterns []string) error {
	p.patterns, p.seen, p.said, p.named = patterns, map[string]bool{}, map[line]bool{}, map[string]bool{}
	p.changed = map[string][2][]byte{}
	for _, list := range tags {
		env, flags := os.Environ(), []string{}
		for tag := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
			if strings.Contains(tag, "=") {
				env = append(env, tag)
			} else {
				flags = append(flags, tag)
			}
		}
		loaded, err := packages.Load(&packages.Config{
			Context: ctx, Dir: p.dir, Env: env, Tests: true, BuildFlags: []string{"-tags=" + strings.Join(flags, ",")},
			Mode: packages.LoadSyntax | packages.NeedModule | packages.NeedForTest,
		}, patterns...)
		if err != nil {
			return err
		}
		p.packages = append(p.packages, slices.DeleteFunc(loaded, func(each *packages.Package) bool {
			return strings.HasSuffix(each.ID, ".test") // its main function is generated
		})...)
	}
	// A package with its tests has all files of the package without them, and more names.
	slices.SortStableFunc(p.packages, func(a, b *packages.Package) int { return cmp.Compare(len(b.GoFiles), len(a.GoFiles)) })
	return nil
}

// imports says whether the file imports a package of redsync, of any version, as far as it can be parsed.
func (p *program) imports(file string) (*ast.File, bool) {
	parsed, _ := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
	return parsed, parsed != nil && importsOld(parsed)
}

// find fills in the report and the changes.
func (p *program) find() {
	for _, each := range p.packages {
		looked[each.PkgPath] = true
		p.clients = p.clients || each.Imports[goredis] != nil
		for path := range each.Imports {
			p.moves = p.moves || isOldPath(path)
		}
	}
	for _, each := range p.packages {
		if len(each.Errors) > 0 {
			p.broken(each)
			continue
		}
		mine := map[string]bool{}
		for _, file := range each.GoFiles {
			if slices.Contains(each.CompiledGoFiles, file) && !p.seen[file] {
				mine[file], p.seen[file] = true, true
			}
		}
		if len(mine) > 0 {
			p.analyze(each, mine)
		}
	}
	p.walk()
}

// broken names the files that keep a package from being compiled, each with its first error. Of such a package no file is
// changed.
func (p *program) broken(each *packages.Package) {
	first := map[string]line{}
	slices.SortStableFunc(each.Errors, func(a, b packages.Error) int { return cmp.Compare(order(a), order(b)) })
	for _, err := range each.Errors {
		l := line{file: each.PkgPath, weight: hand}
		if file, pos, ok := strings.Cut(err.Pos, ".go:"); ok {
			l.file = file + ".go"
			_, _ = fmt.Sscanf(pos, "%d:%d", &l.line, &l.col)
			if !filepath.IsAbs(l.file) {
				l.file = filepath.Join(p.dir, l.file)
			}
		} else if len(first) > 0 {
			continue // it repeats them
		}
		l.text = "does not compile: " + strings.ReplaceAll(strings.TrimSpace(err.Msg), "\n", " ")
		if _, ok := first[l.file]; !ok && !p.named[l.file] {
			first[l.file] = l
			p.named[l.file] = true
			p.say(l)
		}
	}
	for _, file := range each.GoFiles {
		p.seen[file] = true
		if _, old := p.imports(file); old {
			p.blocked, p.moves = true, true
		}
	}
}

// order is the place of an error among those of its package: what cannot be parsed comes first, then what has another
// mistake, and then what only the go command says.
func order(err packages.Error) int {
	switch {
	case !strings.Contains(err.Pos, ".go:"):
		return 2
	case err.Kind == packages.ParseError:
		return 0
	}
	return 1
}

// analyze looks at those files of the package.
func (p *program) analyze(each *packages.Package, mine map[string]bool) {
	pass := &analysis.Pass{
		Analyzer: analyzer, Fset: each.Fset, Files: each.Syntax, Pkg: each.Types, TypesInfo: each.TypesInfo,
		TypesSizes: each.TypesSizes, IgnoredFiles: each.IgnoredFiles, OtherFiles: each.OtherFiles, ReadFile: os.ReadFile,
	}
	pass.Report = func(d analysis.Diagnostic) {
		at := each.Fset.Position(d.Pos)
		if !mine[at.Filename] {
			return
		}
		switch {
		case d.Category == "move":
			p.change(at.Filename, each.Fset, d.SuggestedFixes[0].TextEdits)
		case !p.moves, slices.Contains([]string{"hook", "mock", "goleak"}, d.Category) && !p.clients: // they are about other programs
		default:
			p.say(line{at.Filename, at.Line, at.Column, rules[d.Category].weight, d.Message})
		}
	}
	if _, err := analyzer.Run(pass); err != nil {
		p.say(line{file: each.PkgPath, weight: hand, text: err.Error()})
	}
}

// change applies the edits to a file, in memory.
func (p *program) change(name string, fset *token.FileSet, edits []analysis.TextEdit) {
	before, err := os.ReadFile(name) //nolint:gosec // a file of the program
	var after []byte
	if err == nil {
		after, err = applied(before, fset, edits)
	}
	if err != nil {
		p.blocked = true
		p.say(line{file: name, line: 1, col: 1, weight: hand, text: "cannot be rewritten: " + err.Error()})
		return
	}
	p.changed[name] = [2][]byte{before, after}
}

func applied(before []byte, fset *token.FileSet, edits []analysis.TextEdit) ([]byte, error) {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b analysis.TextEdit) int { return cmp.Compare(a.Pos, b.Pos) })
	var after bytes.Buffer
	at := 0
	for _, edit := range edits {
		file := fset.File(edit.Pos)
		from, to := file.Offset(edit.Pos), file.Offset(edit.End)
		if from < at || to > len(before) {
			return nil, errors.New("the edits overlap")
		}
		after.Write(before[at:from])
		after.Write(edit.NewText)
		at = to
	}
	after.Write(before[at:])
	formatted, err := format.Source(after.Bytes())
	if err != nil {
		return nil, err
	}
	if was, err := format.Source(before); err == nil && bytes.Equal(was, before) {
		return formatted, nil
	}
	return after.Bytes(), nil // what was not formatted is left as it was
}

// walk names the files beside the packages that import redsync v4 and were not looked at.
func (p *program) walk() {
	bases := map[string]bool{} // whether with what is below
	for _, pattern := range p.patterns {
		dir, below := strings.CutSuffix(pattern, "...")
		if dir == "" || dir[0] != '.' && !filepath.IsAbs(dir) {
			continue // the directories of its packages are below
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(p.dir, dir)
		}
		bases[filepath.Clean(dir)] = below
	}
	for _, each := range p.packages {
		if len(each.GoFiles) > 0 {
			dir := filepath.Dir(each.GoFiles[0])
			if _, known := bases[dir]; !known {
				bases[dir] = false
			}
		}
	}
	for base, below := range bases {
		module := ""
		_ = filepath.WalkDir(base, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil //nolint:nilerr // what cannot be read is no file of a package
			case entry.IsDir():
				name := entry.Name()
				if path != base && (!below || name == "vendor" || name == "testdata" || strings.ContainsAny(name[:1], "._")) {
					return filepath.SkipDir
				}
				if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != base {
					module = path
				} else if module != "" && !strings.HasPrefix(path, module+string(filepath.Separator)) {
					module = ""
				}
			case filepath.Ext(path) == ".go" && !p.seen[path]:
				p.unseen(path, module)
			}
			return nil
		})
	}
}

// unseen names a file that was not looked at, if it imports redsync v4.
func (p *program) unseen(path, module string) {
	file, old := p.imports(path)
	if !old {
		return
	}
	p.seen[path] = true
	l := line{file: path, line: 1, col: 1, weight: hand, text: "its name excludes it from this build: add -tags GOOS=... or GOARCH=..., and run again"}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if constraint.IsGoBuild(c.Text) && c.Pos() < file.Package {
				l.line = strings.Count(readBefore(path, int(c.Pos())-1), "\n") + 1
				l.text = c.Text + " excludes it from this build: add the -tags, and run again"
			}
		}
	}
	for _, spec := range file.Imports {
		if spec.Path.Value == `"C"` {
			l.text = "it uses cgo: move it by hand"
		}
	}
	if module != "" {
		l.text = "it is in another module: run there, too"
		if l.file, l.line = filepath.Join(module, "go.mod"), 1; p.said[l] {
			return
		}
	} else {
		p.moves = true
	}
	p.say(l)
}

func readBefore(path string, offset int) string {
	text, err := os.ReadFile(path) //nolint:gosec // a file of the program
	if err != nil || offset > len(text) {
		return ""
	}
	return string(text[:offset])
}

func (p *program) relative(file string) string {
	if short, err := filepath.Rel(p.dir, file); err == nil && filepath.IsAbs(file) && !strings.HasPrefix(short, "..") {
		return filepath.ToSlash(short)
	}
	return file
}

// finish shows or writes the changes, and prints the report.
func (p *program) finish(diff, fix bool) error {
	if !p.moves && len(p.lines) == 0 {
		if len(p.packages) == 0 {
			return errors.New("no packages: " + strings.Join(p.patterns, " "))
		}
		_, err := fmt.Fprintln(p.out, "no file imports redsync v4")
		return err
	}
	names := make([]string, 0, len(p.changed))
	for name := range p.changed {
		names = append(names, name)
	}
	slices.Sort(names)
	if fix && !p.blocked {
		if err := write(names, p.changed); err != nil {
			return err
		}
	}
	var text strings.Builder
	for _, name := range names {
		if diff {
			short := p.relative(name)
			_ = difflib.WriteUnifiedDiff(&text, difflib.UnifiedDiff{
				A: splitLines(p.changed[name][0]), B: splitLines(p.changed[name][1]),
				FromFile: "a/" + short, ToFile: "b/" + short, Context: 3,
			})
		}
	}
	slices.SortFunc(p.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.col, b.col), cmp.Compare(a.text, b.text))
	})
	for _, l := range p.lines {
		at, kind := p.relative(l.file), ""
		if l.line > 0 {
			at = fmt.Sprintf("%s:%d:%d", at, l.line, l.col)
		}
		if l.weight == note {
			kind = "note: "
		} else {
			p.left++
		}
		fmt.Fprintf(&text, "%s: %s%s\n", at, kind, l.text)
	}
	switch {
	case len(names) == 0:
	case p.blocked:
		fmt.Fprintf(&text, "files to rewrite: %d; none is written before the rest compiles\n", len(names))
	case fix:
		fmt.Fprintf(&text, "files rewritten: %d\n", len(names))
	default:
		fmt.Fprintf(&text, "files to rewrite: %d; -fix writes them\n", len(names))
	}
	fmt.Fprintf(&text, "left to a person: %d\n", p.left)
	if fix && !p.blocked && len(names) > 0 {
		fmt.Fprintf(&text, "next: go get %s@latest && go mod tidy\n", here)
	}
	_, err := io.WriteString(p.out, text.String())
	return err
}

func splitLines(text []byte) []string {
	return slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool { return line == "" })
}

// write writes all files, or none.
func write(names []string, changed map[string][2][]byte) (err error) {
	temporary := make([]string, 0, len(names))
	written := 0
	defer func() {
		for _, each := range temporary[written:] {
			_ = os.Remove(each)
		}
		if err != nil {
			for _, name := range names[:written] {
				err = errors.Join(err, os.WriteFile(name, changed[name][0], 0o600)) // it keeps its mode
			}
		}
	}()
	for i, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if names[i], err = filepath.EvalSymlinks(name); err != nil {
			return err
		}
		changed[names[i]] = changed[name]
		file, err := os.CreateTemp(filepath.Dir(names[i]), ".redsync-migrate-*")
		if err != nil {
			return err
		}
		temporary = append(temporary, file.Name())
		_, err = file.Write(changed[name][1])
		if err = errors.Join(err, file.Chmod(info.Mode().Perm()), file.Close()); err != nil {
			return err
		}
	}
	for i, name := range names {
		if err := os.Rename(temporary[i], name); err != nil {
			return err
		}
		written++
	}
	return nil
}
