package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// An event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// tell writes what go test would have written without -json: one line for each package, and the output of tests that
// fail. It notes how long each test took, and returns the tests that failed.
func tell(events io.Reader, out io.Writer, note func(seconds float64, name string)) (failed []failure, err error) {
	outputs := map[string][]string{} // by package and test
	said := map[string]string{}      // by package and test without its subtests, of what has failed
	for decoder := json.NewDecoder(events); ; {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return failed, nil
		}
		if err != nil {
			return nil, err
		}
		of := e.Package + " " + e.Test
		switch e.Action {
		case "build-output":
			_, _ = fmt.Fprint(out, e.Output)
		case "output":
			switch {
			case e.Test != "":
				outputs[of] = append(outputs[of], e.Output)
			case e.Output != "PASS\n" && !strings.HasSuffix(e.Output, "[no test files]\n"):
				_, _ = fmt.Fprint(out, e.Output)
			}
		case "fail":
			_, _ = fmt.Fprint(out, strings.Join(outputs[of], ""))
			top, _, sub := strings.Cut(e.Test, "/")
			said[e.Package+" "+top] += strings.Join(outputs[of], "")
			inTest := func(f failure) bool { return f.pkg == e.Package && f.test != "" }
			if !sub && (top != "" || !slices.ContainsFunc(failed, inTest)) { // a package fails because a test does
				failed = append(failed, failure{e.Package, top, said[e.Package+" "+top]})
			}
			fallthrough
		case "pass", "skip":
			if e.Test != "" && !strings.Contains(e.Test, "/") {
				note(e.Elapsed, strings.TrimSpace(of))
			}
			delete(outputs, of)
		}
	}
}
