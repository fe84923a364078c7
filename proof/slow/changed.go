//go:build linux

package main

import (
	"context"
	"path"
	"slices"
	"strings"
)

// tests is the package with the tests of the library as a whole.
const tests = "./tests"

// changed returns the packages of the root module that differ from the merge base of HEAD and base, and tests if one of
// them is of the library. It returns nothing if git does not know the merge base.
func changed(ctx context.Context, base []string) ([]string, error) {
	fork, err := run(ctx, "git", "merge-base", "HEAD", append(base, "origin/HEAD")[0])
	if err != nil {
		return nil, ctx.Err() //nolint:nilerr // there may be no such branch
	}
	files, err := run(ctx, "git", "diff", "--name-only", fork[0])
	if err != nil {
		return nil, err
	}
	added, err := run(ctx, "git", "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	const format = "{{.ImportPath}}"
	packages, err := run(ctx, "go", "list", "-f", format, "./...", "./proof/...")
	if err != nil {
		return nil, err
	}
	library, err := run(ctx, "go", "list", "-deps", "-f", format, ".")
	if err != nil {
		return nil, err
	}
	return packagesOf(append(files, added...), packages, library), nil
}

// module is the root module.
const module = "github.com/seed14bd9ef4/redsync"

// packagesOf returns the packages whose code, scripts or testdata the files are, and tests if one is of the library. Files of
// other modules count for none.
func packagesOf(files, packages, library []string) (names []string) {
	for _, file := range files {
		dir, _, isData := strings.Cut(path.Dir(file), "/testdata")
		of := path.Join(module, dir)
		switch ext := path.Ext(file); {
		case file == "go.mod":
			names = append(names, tests)
		case !isData && ext != ".go" && ext != ".lua" || !slices.Contains(packages, of):
		case !isData && !strings.HasSuffix(file, "_test.go") && slices.Contains(library, of):
			names = append(names, tests, "./"+dir)
		default:
			names = append(names, "./"+dir)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
