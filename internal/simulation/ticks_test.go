package simulation

func (c *simClient) tick() {}
