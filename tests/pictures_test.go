package redsync_test

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// A pictureElement is a text or a rectangle of a picture.
type pictureElement struct {
	X      float64 `xml:"x,attr"`
	Y      float64 `xml:"y,attr"`
	Width  float64 `xml:"width,attr"`
	Height float64 `xml:"height,attr"`
	Size   float64 `xml:"font-size,attr"`
	Anchor string  `xml:"text-anchor,attr"`
	Weight string  `xml:"font-weight,attr"`
	Moved  string  `xml:"transform,attr"`
	Text   string  `xml:",chardata"`
}

// readPicture returns the texts and the rectangles of an SVG.
func readPicture(t *testing.T, path string) (all map[string][]pictureElement) {
	t.Helper()
	all = map[string][]pictureElement{}
	decoder := xml.NewDecoder(strings.NewReader(read(t, path)))
	for token, _ := decoder.Token(); token != nil; token, _ = decoder.Token() {
		if start, ok := token.(xml.StartElement); ok && slices.Contains([]string{"text", "rect"}, start.Name.Local) {
			var e pictureElement
			noError(t, decoder.DecodeElement(&e, &start))
			all[start.Name.Local] = append(all[start.Name.Local], e)
		}
	}
	return all
}

// in gives a text the box that it has in a font.
func (e pictureElement) in(font string) pictureElement {
	advances := strings.Fields(fonts[strings.TrimSpace(font+" "+e.Weight)])
	for _, r := range e.Text {
		at := int(r - ' ')
		if r == 'µ' {
			at = len(advances) - 1
		}
		advance, _ := strconv.ParseFloat(advances[at], 64)
		e.Width += advance * e.Size / 1000
	}
	e.X -= map[string]float64{"middle": e.Width / 2, "end": e.Width}[e.Anchor]
	e.Y, e.Height = e.Y-0.76*e.Size, e.Size
	return e
}

// has reports whether a point is in the box of e.
func (e pictureElement) has(x, y float64) bool {
	return e.X <= x && x <= e.X+e.Width && e.Y <= y && y <= e.Y+e.Height
}

// Every text of every picture is inside the picture and inside the box that it stands in, and touches no other text,
// also in a font with wide letters.
func TestTextsOfPicturesHaveRoom(t *testing.T) {
	t.Parallel()
	for _, path := range pictures(t) {
		all := readPicture(t, path)
		require.NotEmpty(t, all["text"], path)
		for _, font := range []string{"DejaVu Sans", "Liberation Sans"} {
			var boxes []pictureElement
			for _, text := range all["text"] {
				what := fmt.Sprintf("%s in %s: %q", path, font, text.Text)
				require.Empty(t, text.Moved, what)
				box := text.in(font)
				var around pictureElement // the smallest box of the picture in which the text stands, or its frame
				for _, r := range all["rect"] {
					if r.has(text.X, text.Y-text.Size/3) && (around.Width == 0 || r.Width*r.Height < around.Width*around.Height) {
						around = r
					}
				}
				assert.True(t, around.has(box.X-2, box.Y) && around.has(box.X+box.Width+2, box.Y+box.Height-1), what)
				for _, other := range boxes {
					apart := box.X > other.X+other.Width+2 || box.X+box.Width < other.X-2 ||
						box.Y > other.Y+other.Height || box.Y+box.Height < other.Y
					assert.True(t, apart, "%s touches %q", what, other.Text)
				}
				boxes = append(boxes, box)
			}
		}
	}
}

// darkPicture makes the colors of a picture for a dark page from those for a light one.
var darkPicture = strings.NewReplacer(strings.Fields(`
	#ffffff #0d1117
	#f9fafb #161b22
	#e5e7eb #30363d
	#d1d5db #30363d
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

// fonts are the widths of the letters of the fonts in which a page may show a picture, by font-weight, in thousandths of
// the font size: those from the space to the tilde, and of µ. They are what GlyphAdvance of golang.org/x/image/font/sfnt
// says at 1000 pixels per em of DejaVuSans.ttf and LiberationSans-Regular.ttf and their bold forms, as the Debian
// packages fonts-dejavu-core 2.37 and fonts-liberation 1.07 have them.
var fonts = map[string]string{
	"DejaVu Sans": `
		318 401 460 838 636 950 780 275 390 390 500 838 318 361 318 337 636 636 636 636 636 636 636 636
		636 636 337 337 838 838 838 531 1000 684 686 698 770 632 575 775 752 295 295 656 557 863 748 787
		603 787 695 635 611 732 684 989 685 611 685 390 337 390 838 500 500 613 635 550 635 615 352 635
		634 278 278 579 278 974 634 612 635 635 411 521 392 634 592 818 592 592 525 636 337 636 838 636
	`,
	"DejaVu Sans bold": `
		348 456 521 838 696 1002 872 306 457 457 523 838 380 415 380 365 696 696 696 696 696 696 696 696
		696 696 400 400 838 838 838 580 1000 774 762 734 830 683 683 821 837 372 372 775 637 995 837 850
		733 850 770 720 682 812 774 1103 771 724 725 457 365 457 838 500 500 675 716 593 716 678 435 716
		712 343 343 665 343 1042 712 687 716 716 493 595 478 712 652 924 645 652 582 712 365 712 838 736
	`,
	"Liberation Sans": `
		278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556
		556 556 278 278 584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778
		667 778 722 667 611 722 667 944 667 667 611 278 278 278 469 556 333 556 556 500 556 556 278 556
		556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500 334 260 334 584 576
	`,
	"Liberation Sans bold": `
		278 333 474 556 556 889 722 238 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556
		556 556 333 333 584 584 584 611 975 722 722 722 722 667 611 778 722 278 556 722 611 833 722 778
		667 778 722 667 611 722 667 944 667 667 611 333 278 333 584 556 333 556 611 556 611 556 333 611
		611 278 278 556 278 889 611 611 611 611 389 556 333 611 556 778 556 556 500 389 280 389 584 576
	`,
}
