package redsyncgocron_test

func childJob() (int, bool) { return 0, false }
func runChild(int)          {}
