package script

import "strings"

// This file is the names of keys: what stands beside a lock, in the
// same slot of a Redis Cluster.

// sides are the keys beside a lock's own.
var sides = []string{":queue", ":fence"}

// QueueKey returns the key of the queue of name's waiters.
//
// Side keys have name's hash tag if it has one, else name is their tag. Where name has
// none and yet a closing brace (a}b) there is no such key in its slot: on a Cluster
// the nodes refuse it.
func QueueKey(name string) string { return sideKey(name, ":queue") }

// FenceKey returns the key of name's fencing register. QueueKey says in which slot.
func FenceKey(name string) string { return sideKey(name, ":fence") }

// sideKey returns the side key of name that ends in side. Names with a tag of their own
// are repeated behind it: {b} is another lock than b. So are those that can have no
// tag: b}:{b is another one than {b}.
func sideKey(name, side string) string {
	tag := hashTag(name)
	if tag != "" || strings.Contains(name, "}") {
		return "{" + tag + "}:" + name + side
	}
	return "{" + name + "}" + side
}

// hashTag returns the part of a key that Redis Cluster hashes in place of the whole,
// "" if that is the whole.
func hashTag(key string) string {
	_, after, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(after, "}")
	if !open || !closed {
		return ""
	}
	return tag
}

// Reserved returns the suffix of name if it is a side key of another lock, else "".
func Reserved(name string) string {
	for _, side := range sides {
		base, ok := strings.CutSuffix(name, side)
		if ok && isSideBase(base) {
			return side
		}
	}
	return ""
}

func isSideBase(base string) bool {
	if strings.HasPrefix(base, "{") && strings.HasSuffix(base, "}") || strings.HasPrefix(base, "{}:") {
		return true
	}
	tag := hashTag(base)
	name, ok := strings.CutPrefix(base, "{"+tag+"}:")
	return ok && tag != "" && hashTag(name) == tag
}
