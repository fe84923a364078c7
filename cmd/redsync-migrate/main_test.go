package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	_ "github.com/go-redis/redismock/v9" // the programs of testdata import these
	_ "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	_ "github.com/go-redsync/redsync/v4/redis/redigo"
	_ "github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "go.uber.org/goleak"
	"golang.org/x/tools/txtar"

	_ "github.com/seed14bd9ef4/redsync/pool"
)

var update = flag.Bool("update", false, "write into testdata what the command does")

// TestPrograms moves each program of testdata. After its files such an archive has the report, "output", and what the
// files became, "moved/FILE".
func TestPrograms(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -mod=mod")
	archives, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, archives)
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			require.NoError(t, err)
			dir, args := t.TempDir(), []string(nil)
			module(t, dir)
			source := &txtar.Archive{Comment: archive.Comment}
			want := map[string]string{}
			for _, file := range archive.Files {
				if file.Name == "output" || strings.HasPrefix(file.Name, "moved/") {
					want[file.Name] = string(file.Data)
					continue
				}
				source.Files = append(source.Files, file)
				if file.Name == "args" {
					args = strings.Fields(string(file.Data))
					continue
				}
				name := filepath.Join(dir, file.Name)
				require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
				require.NoError(t, os.WriteFile(name, file.Data, 0o600))
			}

			var out, failures bytes.Buffer
			status := run(t.Context(), dir, args, &out, &failures)
			require.Empty(t, failures.String())
			got := map[string]string{"output": strings.ReplaceAll(out.String(), dir+string(filepath.Separator), "") +
				"exit status " + strconv.Itoa(status) + "\n"}
			result := &txtar.Archive{Comment: source.Comment, Files: append(source.Files, txtar.File{Name: "output", Data: []byte(got["output"])})}
			var clean []string
			for _, file := range source.Files {
				if file.Name == "args" {
					continue
				}
				text, err := os.ReadFile(filepath.Join(dir, file.Name))
				require.NoError(t, err)
				if !bytes.Equal(text, file.Data) {
					got["moved/"+file.Name] = string(text)
					result.Files = append(result.Files, txtar.File{Name: "moved/" + file.Name, Data: text})
					if !strings.Contains(got["output"], filepath.Dir(file.Name)+"/") {
						clean = append(clean, "./"+filepath.Dir(file.Name))
					}
				}
			}
			if *update {
				require.NoError(t, os.WriteFile(path, txtar.Format(result), 0o600))
			} else {
				assert.Equal(t, want, got)
			}
			left, err := filepath.Glob(filepath.Join(dir, "*", ".redsync-migrate-*"))
			require.NoError(t, err)
			require.Empty(t, left)
			if status < 1 || len(clean) > 1 { // what has no report compiles
				vet := exec.CommandContext(t.Context(), "go", append([]string{"vet", "-composites=false"}, clean...)...) //nolint:gosec // fixed
				vet.Dir = dir
				if output, err := vet.CombinedOutput(); len(clean) > 0 {
					require.NoError(t, err, string(output))
				}
			}
		})
	}
}

// module makes dir a module that requires what this one does.
func module(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "\n")
	rest = strings.Replace(rest, "=> ../..", "=> "+strconv.Quote(root)+" //", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module cases\n"+rest), 0o600))
	sums, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
}

// The command makes of the program for redsync v4 the one in examples/migration, whose tests run it.
func TestMovesTheExample(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -mod=mod")
	const example = "../../examples/migration/"
	dir := t.TempDir()
	module(t, dir)
	before, err := filepath.Glob(example + "testdata/*.go.txt")
	require.NoError(t, err)
	require.NotEmpty(t, before)
	name := func(path string) string { return strings.TrimSuffix(filepath.Base(path), ".txt") }
	for _, path := range before {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name(path)), text, 0o600))
	}
	var out bytes.Buffer
	require.Equal(t, 1, run(t.Context(), dir, []string{"-fix"}, &out, &out), out.String()) // it uses every option
	for _, path := range before {
		want, err := os.ReadFile(example + name(path))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, name(path)))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got))
	}
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]int{"-version": 0, "-h": 0, "-no": 2, "-diff -fix": 2, "./no/such/directory": 2} {
		var out, failures bytes.Buffer
		assert.Equal(t, want, run(context.Background(), t.TempDir(), strings.Fields(args), &out, &failures), args)
		assert.Equal(t, args == "-version", out.Len() > 0, args)
	}
}

// All files are written, or none: here the second cannot be.
func TestWriteIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a.go"), filepath.Join(dir, "gone", "b.go")
	require.NoError(t, os.WriteFile(first, []byte("before"), 0o600))
	both := map[string][2][]byte{first: {[]byte("before"), []byte("after")}, second: {nil, []byte("after")}}
	require.Error(t, write([]string{first, second}, both))
	text, err := os.ReadFile(first) //nolint:gosec // the test's
	require.NoError(t, err)
	assert.Equal(t, "before", string(text))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}
