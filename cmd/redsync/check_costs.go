package main

import "strings"

// This file has the words of docs/permissions.md on what a missing rule costs. A test compares them with the page.

// The rules that are not those of commands, as the page has them, for locks whose names begin with app:.
const (
	nameRule    = "~app:*"
	sideRule    = "~{app:*"
	channelRule = "&redsync:*"
)

// guardFeature is the feature of --guard.
const guardFeature = "pool.WithRestartGuard"

// A feature is a row of the page's table.
type feature struct {
	name  string
	rules string // which it needs
	sides string // which of the keys of sideRule, by their ends
	cost  string // what happens without them
	also  string // rules that the page names, but whose lack costs nothing that cost says
}

var features = []feature{
	{
		name: "Open, Ping", rules: "+ping", cost: "they fail; New does not need it",
	},
	{
		name: "waking waiters", rules: "~{app:* &redsync:* +time +publish +subscribe", sides: queueSide,
		cost: "nobody wakes waiters of other processes: they try again after each retry delay, and at least every half second",
	},
	{
		name: "WithFair", rules: "~{app:* +time", sides: queueSide, cost: "without ~{app:* or +time the node does not grant the lock",
	},
	{
		name: "WithShared", rules: "~{app:* +time", sides: queueSide,
		cost: "without +time the node grants no shared lock. Without ~{app:* it grants none with WithFair; otherwise it does, but readers can starve writers",
	},
	{
		name: "WithPermits", rules: "~{app:* +mget +exists", sides: slotSide + " " + slotsSide, also: "+time",
		cost: "without ~{app:* the node grants no permit. Without +mget or +exists it grants only the permit that an attempt asks for first, if that is free, and none with WithFair",
	},
	{
		name: "WithFencing, Lead", rules: "~{app:*", sides: fenceSide, cost: "the node does not grant the lock",
	},
	{
		name: "finding two addresses of one server", rules: "+info", cost: "they are not found",
	},
	{
		name: guardFeature, rules: "+info", cost: "the node's votes never count",
	},
	{
		name: "Inspect, ErrTaken.Owner", rules: "~app:* +get +strlen +pttl +eval +evalsha +time ~{app:*",
		sides: queueSide + " " + fenceSide + " " + slotSide + " " + slotsSide,
		cost:  "the node says nothing. Without ~{app:* alone, NodeStatus.Denied is true, and of permits it says nothing",
	},
	{
		name: "ForceUnlock", rules: "&redsync:* +publish +subscribe", cost: "the holder learns as one without WithOwner",
	},
	{
		name: "loading the scripts when a connection opens", rules: "+script|load", cost: "the first use of a script costs another round trip",
	},
	{
		name: "Unlock of several names: one command reads all keys", rules: "+mget", cost: "its script reads each key alone",
	},
	{
		name: "a script knows how long a key is before it reads it", rules: "+strlen +getrange",
		cost: "it reads a key that somebody has made long, and every client waits; Unlock runs more commands",
	},
	{
		name: "the type in an error about a key of another type", rules: "+type", cost: "the error names the key alone",
	},
}

// A baseRule is a row of the page's table of what works without one of the base rules.
type baseRule struct {
	rules string
	works [4]string // of baseCalls
}

// baseCalls are the columns of that table.
var baseCalls = [4]string{"Lock", "Extend", "Valid", "Unlock"}

var baseRules = []baseRule{
	{"~app:* +set", [4]string{"no", "", "", ""}},
	{"+get +eval +evalsha", [4]string{"yes", "no", "no", "no: left"}},
	{"+del", [4]string{"yes", "yes", "yes", "no: left"}},
	{"+pttl +pexpire", [4]string{"yes", "no", "yes", "yes; with WithMinHold no: left, and deleted when the minimal hold is over if the process still runs"}},
}

// leftMeans says what "left" means in that table.
const leftMeans = "\"Left\" means that the key stays until it expires"

// costOf returns the cost of a feature.
func costOf(name string) string {
	for _, f := range features {
		if f.name == name {
			return f.cost
		}
	}
	return ""
}

// costs returns what the lack of rules costs, a line each. lacks reports whether a rule is missing, and lacksSide the same of
// the keys of sideRule with that end.
func costs(lacks, lacksSide func(string) bool, guard bool) (lines []string) {
	left := false
	for _, b := range baseRules {
		missing := among(b.rules, lacks)
		if len(missing) == 0 {
			continue
		}
		var works []string
		for i, text := range b.works {
			if text != "" {
				works = append(works, baseCalls[i]+" "+text)
				left = left || strings.Contains(text, "left")
			}
		}
		lines = append(lines, "without "+strings.Join(missing, " ")+": "+strings.Join(works, ", "))
	}
	if left {
		lines = append(lines, leftMeans)
	}
	for _, f := range features {
		if f.name == guardFeature && !guard {
			continue
		}
		if len(among(f.rules, lacks))+len(among(f.sides, lacksSide)) > 0 {
			lines = append(lines, f.name+": "+f.cost)
		}
	}
	return lines
}

// among returns those of a list that are missing.
func among(list string, lacks func(string) bool) (missing []string) {
	for one := range strings.FieldsSeq(list) {
		if lacks(one) {
			missing = append(missing, one)
		}
	}
	return missing
}
