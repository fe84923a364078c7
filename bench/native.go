package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/pool"
)

const (
	oursScripts = ours + " WithoutNativeCommands"
	floorNative = floor + ", own commands"
)

// natives are contenders for servers with commands in place of scripts.
var natives = []contender{
	{
		name: oursScripts, strict: true, inScripts: oursInScripts, like: likeOurs(),
		open: func(addrs []string, ttl time.Duration) (library, error) {
			return dialOurs(addrs, ttl, pool.WithoutNativeCommands()), nil
		},
	},
	{name: floorNative, strict: true, inScripts: []string{"get", "del"}, open: openFloorNative, like: likeNothing},
}

var nativeScene = scene{
	name: "native", apart: true,
	about: "The scene distinct on servers whose own commands stand for scripts: Redis 8.4, Valkey 9.0 and later. " +
		"Beside it this library with scripts, and a floor with the same commands. Others are skipped.",
	columns: []column{
		{title: "pairs/s", key: "rate", format: whole},
		{title: "p50 µs", key: "pair_p50", format: whole},
		{title: "p99 µs", key: "pair_p99", format: whole},
		{title: "client CPU µs", key: "client_cpu", format: tenth},
		{title: "server CPU µs", key: "server_cpu", format: tenth},
		{title: "x scripts", key: "rate", format: cents, base: toLibrary(oursScripts)},
		{title: "server CPU x scripts", key: "server_cpu", format: cents, base: toLibrary(oursScripts)},
		{title: "x " + defaults, key: "rate", format: cents, base: toLibrary(defaults)},
		{title: "x " + floorNative, key: "rate", format: cents, base: toLibrary(floorNative)},
		{title: "keys left", key: "left", format: whole},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(p plan) []cell {
		widths := []int{1, 16, 128, 1024}
		if p.quick {
			widths = []int{128}
		}
		return grid("native", "", widths, named(ours, oursScripts, defaults, floorNative), measureNative)
	},
}

func measureNative(ctx context.Context, l *lab, c cell) (figures, error) {
	if command, err := deletes(ctx, l.addrs[0]); command == "" || err != nil {
		return nil, err
	}
	return measureDistinct(ctx, l, c)
}

// deletes returns the command of a server that compares and deletes, "" if it has none.
func deletes(ctx context.Context, addr string) (name string, err error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { err = errors.Join(err, client.Close()) }()
	known, err := client.Command(ctx).Result()
	for _, name := range []string{"delifeq", "delex"} {
		if known[name] != nil {
			return name, err
		}
	}
	return "", err
}

func openFloorNative(addrs []string, ttl time.Duration) (library, error) {
	command, err := deletes(context.Background(), addrs[0])
	if err != nil {
		return nil, err
	}
	lib, err := openFloor(addrs, ttl)
	if err == nil {
		lib.(*floorLibrary).command = command
	}
	return lib, err
}
