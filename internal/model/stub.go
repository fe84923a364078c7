package model

func queueCases() []Case        { return nil }
func settleCases() []Case       { return nil }
func handOverCases() []Case     { return nil }
func queueMutations() []Case    { return nil }
func settleMutations() []Case   { return nil }
func handOverMutations() []Case { return nil }
