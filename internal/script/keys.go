package script

import (
	"strconv"
	"strings"
)

// sides are the ends of the keys beside a lock's own, in its slot of a Cluster, except slots, which end in a number.
var sides = []string{slotQueueSide, queueSide, fenceSide}

// A number follows slotSide. slotQueueSide is not ":slot:queue": the semaphore {b} and the lock {b}:slot would have one
// queue.
const (
	queueSide     = ":queue"
	fenceSide     = ":fence"
	slotSide      = ":slot:"
	slotQueueSide = ":slots"
	leaderSide    = ":leader" // of a channel: no key ends in it
)

// QueueKey returns the key of the queue of name's waiters.
//
// Side keys have name's hash tag; without one, name is their tag. If name has only a closing brace (a}b), they are not
// in its slot, and a Cluster refuses commands with both.
func QueueKey(name string) string { return sideKey(name, queueSide) }

// FenceKey returns the key of name's fencing register.
func FenceKey(name string) string { return sideKey(name, fenceSide) }

// LeaderChannel returns the channel on which leaders of name tell that they begin and end, on a Ring on the lock's
// node.
func LeaderChannel(name string) string { return "redsync:" + sideKey(name, leaderSide) }

func slotKey(name string, slot int) string { return sideKey(name, slotSide+strconv.Itoa(slot)) }

// SlotQueueKey returns the key of the queue of a semaphore, also the name of its line.
func SlotQueueKey(name string) string { return sideKey(name, slotQueueSide) }

// LineOf returns the line whose waiters may go on when key is free: of a slot, that of its semaphore.
func LineOf(key string) string {
	if base, ok := cutSlot(key); ok && isSideBase(base) {
		return base + slotQueueSide
	}
	return key
}

// cutSlot cuts the end of a slot's key off.
func cutSlot(key string) (base string, ok bool) {
	at := strings.LastIndex(key, slotSide)
	if at < 0 {
		return "", false
	}
	number := key[at+len(slotSide):]
	slot, err := strconv.Atoi(number)
	return key[:at], err == nil && slot >= 0 && strconv.Itoa(slot) == number
}

// sideKey returns the side key of name that ends in side. The name follows its tag, or b and {b} would share a side
// key. With a closing brace and no tag it follows an empty one, or {b} and b}:{b would.
func sideKey(name, side string) string {
	tag := hashTag(name)
	if tag != "" || strings.Contains(name, "}") {
		return "{" + tag + "}:" + name + side
	}
	return "{" + name + "}" + side
}

// hashTag returns what Redis Cluster hashes of a key, "" if that is all of it.
func hashTag(key string) string {
	_, after, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(after, "}")
	if !open || !closed {
		return ""
	}
	return tag
}

// MayBePrefix reports whether prefix leaves the hash tags of names alone, or is one for all of them.
func MayBePrefix(prefix string) bool {
	return hashTag(prefix) != "" || !strings.ContainsAny(prefix, "{}")
}

// Reserved returns the suffix of name if it is a side key of another lock, else "".
func Reserved(name string) string {
	for _, side := range sides {
		base, ok := strings.CutSuffix(name, side)
		if ok && isSideBase(base) {
			return side
		}
	}
	if base, ok := cutSlot(name); ok && isSideBase(base) {
		return name[len(base):]
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
