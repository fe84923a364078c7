package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	rival "github.com/go-redsync/redsync/v4"

	"github.com/seed14bd9ef4/redsync"
)

// start opens the contender and checks that it runs with the options of its name: it acquires
// one lock, reads the settings of that lock, reads its TTL from the nodes, and releases it. Every
// scene starts its contenders here, so an option that is dropped on the way to a lock
// fails the run instead of mislabelling a row.
func (c contender) start(ctx context.Context, addrs []string, ttl time.Duration) (library, error) {
	lib, err := c.open(addrs, ttl)
	if err != nil {
		return nil, err
	}
	if err := c.control(ctx, lib, addrs, ttl); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.name, err), lib.Close())
	}
	return lib, nil
}

func (c contender) control(ctx context.Context, lib library, addrs []string, ttl time.Duration) error {
	name := fmt.Sprintf("bench:control:%d:%d", os.Getpid(), time.Now().UnixNano()) // no other process uses it
	lock, err := lib.Lock(ctx, name)
	if err != nil {
		return err
	}
	err = c.checkSettings(lib, lock, ttl)
	if err == nil {
		err = checkTTL(ctx, addrs, c.keyPrefix+name, ttl)
	}
	return errors.Join(err, unlock(ctx, lock))
}

// A setting is a field of a lock, or of the library that made it, and the value it must have.
// Most are unexported: reflection reads what no API tells.
type setting struct {
	field string
	want  string
}

func bools(field string, want bool) setting { return setting{field, strconv.FormatBool(want)} }

func ints[T ~int | ~int64](field string, want T) setting {
	return setting{field, strconv.FormatInt(int64(want), 10)}
}

// noSettings is for contenders without options of their own: the TTL on the node is all there is to check.
func noSettings(time.Duration) []setting { return nil }

func redsyncSettings(failFast bool) func(time.Duration) []setting {
	return func(ttl time.Duration) []setting {
		return []setting{ints("expiry", ttl), bools("failFast", failFast)}
	}
}

func rueidislockSettings(ttl time.Duration) []setting {
	return []setting{ints("validity", ttl), ints("timeout", ttl), ints("majority", 1), bools("noloop", true)}
}

// oursSettings are those of this library with one option, or none, that is not at its default.
func oursSettings(option string) func(time.Duration) []setting {
	return func(ttl time.Duration) []setting {
		list := []setting{ints("set.expiry", ttl)}
		for _, name := range []string{"waitAll", "heals", "watchdog", "fair", "fencing", "noHandOver"} {
			list = append(list, bools("set."+name, name == option))
		}
		return list
	}
}

// checkSettings compares the settings of a lock that was acquired with those that c must have.
func (c contender) checkSettings(lib library, lock held, ttl time.Duration) error {
	var holder any
	switch l := lock.(type) {
	case *redsync.Mutex, *rival.Mutex:
		holder = l
	default:
		if r, ok := lib.(rueidislockLibrary); ok {
			holder = r.locker
		}
	}
	for _, s := range c.settings(ttl) {
		got, err := fieldText(holder, s.field)
		if err != nil {
			return err
		}
		if got != s.want {
			return fmt.Errorf("its %s is %s, want %s", s.field, got, s.want)
		}
	}
	return nil
}

// fieldText returns the boolean or integer at a path of fields.
func fieldText(holder any, path string) (string, error) {
	v := reflect.ValueOf(holder)
	for step := range strings.SplitSeq(path, ".") {
		v = reflect.Indirect(v)
		if v.Kind() == reflect.Struct {
			v = v.FieldByName(step)
		} else {
			v = reflect.Value{}
		}
	}
	switch {
	case !v.IsValid():
		return "", fmt.Errorf("%T has no field %s", holder, path)
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool()), nil
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10), nil
	}
	return "", fmt.Errorf("field %s of %T is a %v", path, holder, v.Kind())
}

// checkTTL checks the TTL of key on the node that keeps it the longest. It may be as little as half of
// ttl, because time has passed since Lock, and a second more than ttl, because some libraries round up.
func checkTTL(ctx context.Context, addrs []string, key string, ttl time.Duration) (err error) {
	nodes := dial(addrs)
	defer func() { err = errors.Join(err, nodes.Close()) }()
	var left []time.Duration
	for _, node := range nodes {
		d, err := node.PTTL(ctx, key).Result()
		if err != nil {
			return err
		}
		left = append(left, d)
	}
	if longest := slices.Max(left); longest < ttl/2 || longest > ttl+time.Second {
		return fmt.Errorf("the nodes keep %s for %v, want about %v", key, longest, ttl)
	}
	return nil
}
