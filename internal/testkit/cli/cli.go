// Package cli parses the flags of the programs of this repository, and reports how a program ended:
// with the same exit statuses in all of them, and each error on one line.
package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// The exit status of a program.
const (
	OK     = 0 // success, and -h
	Failed = 1
	Misuse = 2 // bad flags
)

// A usageError says what is wrong with the command line.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// Misusef returns an error for which the program exits with Misuse.
func Misusef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// A helpError carries the help text that -h asks for.
type helpError struct{ text string }

func (e *helpError) Error() string { return e.text }
func (e *helpError) Unwrap() error { return flag.ErrHelp }

// Parse parses args, which must be flags only. Pass its error to Status. For -h the error carries
// the help text. Otherwise it is one line, with the usage of the flag that is wrong. The usage of a
// flag should therefore state its range.
func Parse(flags *flag.FlagSet, args []string) error {
	rest, err := ParseFirst(flags, args)
	if err == nil && len(rest) > 0 {
		return Misusef("unexpected argument %q (-h lists the flags)", rest[0])
	}
	return err
}

// ParseFirst is Parse for a program with arguments behind the flags, which it returns.
func ParseFirst(flags *flag.FlagSet, args []string) (rest []string, err error) {
	flags.SetOutput(io.Discard)
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		var text bytes.Buffer
		_, _ = fmt.Fprintf(&text, "Usage of %s:\n", flags.Name())
		flags.SetOutput(&text)
		flags.PrintDefaults()
		return nil, &helpError{text.String()}
	case err != nil:
		return nil, Misusef("%w%s", err, usageOf(flags, err))
	}
	return flags.Args(), nil
}

// usageOf returns the text to append to err, an error of flags.Parse: the usage of the flag that err
// names, or how to list the flags if there is no such flag.
func usageOf(flags *flag.FlagSet, err error) (text string) {
	text = " (-h lists the flags)"
	flags.VisitAll(func(f *flag.Flag) {
		if strings.Contains(err.Error()+":", " -"+f.Name+":") { // "... for flag -time: parse error", "flag needs an argument: -time"
			_, usage := flag.UnquoteUsage(f)
			text = fmt.Sprintf(" (-%s: %s)", f.Name, usage)
		}
	})
	return text
}

// Status returns the exit status for err, the outcome of a program. It writes the help text to out,
// and any other error to errs, as a line that begins with the program's name.
func Status(program string, err error, out, errs io.Writer) int {
	if help := (*helpError)(nil); errors.As(err, &help) {
		_, _ = io.WriteString(out, help.text)
		return OK
	}
	if err == nil {
		return OK
	}
	_, _ = fmt.Fprintf(errs, "%s: %v\n", program, err)
	if misuse := (*usageError)(nil); errors.As(err, &misuse) {
		return Misuse
	}
	return Failed
}

// Folder checks folder, the value of the flag called name. It returns an error of Misusef if no file
// can be created there.
func Folder(name, folder string) error {
	probe, err := os.CreateTemp(folder, ".probe-*")
	if err != nil {
		return Misusef("-%s %s: it must be a folder that can be written: %w", name, folder, cause(err))
	}
	_ = probe.Close()
	return os.Remove(probe.Name())
}

// File is Folder for a flag whose value is the path of a file that the program will write.
func File(name, file string) error {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return Misusef("-%s %s: it must be a file, and is a folder", name, file)
	}
	probe, err := os.CreateTemp(filepath.Dir(file), ".probe-*")
	if err != nil {
		return Misusef("-%s %s: it must be a file in a folder that can be written: %w", name, file, cause(err))
	}
	_ = probe.Close()
	return os.Remove(probe.Name())
}

// cause returns why a file could not be created, without its path: the user does not know the probe
// file that the path names.
func cause(err error) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Main runs a program until it has ended, and exits with the status that run returns. SIGINT and SIGTERM end the context;
// a second one ends the program at once.
func Main(run func(ctx context.Context) (status int)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	status := run(ctx)
	stop()
	os.Exit(status)
}
