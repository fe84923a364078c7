package redsync_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func pictures(t *testing.T) (paths []string) {
	t.Helper()
	for _, dir := range []string{"docs", "bench"} {
		found, _ := filepath.Glob("../" + dir + "/*.svg")
		require.NotEmpty(t, found)
		paths = append(paths, found...)
	}
	return paths
}

// darkPicture makes the colors of a picture for a dark page from those for a light one.
var darkPicture = strings.NewReplacer(strings.Fields(`
	#ffffff #0d1117
	#f9fafb #161b22
	#e5e7eb #30363d
	#9ca3af #6b7280
	#6b7280 #9ca3af
	#4b5563 #9aa4b2
	#1f2937 #e6edf3
	#bfdbfe #1e3a5f
	#2563eb #60a5fa
	#1e3a8a #dbeafe
	#86efac #166534
	#15803d #4ade80
	#14532d #86efac
	#fde68a #713f12
	#fef3c7 #422006
	#b45309 #f59e0b
	#b91c1c #f87171
`)...)

// Every picture has a form for dark pages, which differs from it in colors alone. REDSYNC_PICTURES_REWRITE=1 writes those
// of docs.
func TestPicturesHaveADarkForm(t *testing.T) {
	t.Parallel()
	for _, path := range pictures(t) {
		if base, isDark := strings.CutSuffix(path, "-dark.svg"); isDark {
			assert.FileExists(t, base+".svg")
			continue
		}
		dark, want := strings.TrimSuffix(path, ".svg")+"-dark.svg", darkPicture.Replace(read(t, path))
		if os.Getenv("REDSYNC_PICTURES_REWRITE") == "1" && filepath.Dir(path) == "../docs" {
			noError(t, os.WriteFile(dark, []byte(want), 0o644))
		}
		assert.Equal(t, want, read(t, dark), path)
	}
}

// Every picture can be read on a phone, which shows it 343 pixels wide.
func TestPicturesCanBeReadOnAPhone(t *testing.T) {
	t.Parallel()
	number := regexp.MustCompile(`viewBox="0 0 (\d+) |font-size="(\d+)"`)
	for _, path := range pictures(t) {
		width := 0
		for _, m := range number.FindAllStringSubmatch(read(t, path), -1) {
			if m[1] != "" {
				width = max(343, must(strconv.Atoi(m[1])))
			} else {
				assert.GreaterOrEqual(t, must(strconv.Atoi(m[2]))*343/width, 9, path)
			}
		}
	}
}

// Every picture is shown on a page, and pages show each picture in both forms.
func TestPicturesAreShownInBothForms(t *testing.T) {
	t.Parallel()
	pages := read(t, "../README.md") + read(t, "../bench/README.md")
	docs := must(filepath.Glob("../docs/*.md"))
	for _, page := range docs {
		pages += read(t, page)
	}
	for _, path := range pictures(t) {
		if name := filepath.Base(path); strings.HasSuffix(name, "-dark.svg") {
			assert.Regexp(t, `srcset="[^"]*`+name+`">`, pages)
		} else {
			assert.Regexp(t, `<img src="[^"]*`+name+`"`, pages)
		}
	}
}
