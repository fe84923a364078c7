package toy

import "testing"

func TestFull(t *testing.T) {
	if Full(2) || !Full(3) {
		t.Fatal("not where it should be")
	}
}

func TestClamp(t *testing.T) {
	if Clamp(1) != 1 || Clamp(20) != 10 {
		t.Fatal("not clamped")
	}
}

func TestPair(t *testing.T) {
	var p Pair[int]
	if p.Add("", 1, 2) != 2 || len(p.a) != 2 {
		t.Fatal("not added")
	}
}

func TestSpin(*testing.T) { Spin(0) }

func TestLua(t *testing.T) {
	if Lines[1] != "if x == 1 then return 0 end" {
		t.Fatal(Lines[1])
	}
}

func TestStatus(t *testing.T) {
	if Status(func() {}) != 0 || Status(func() { panic("no") }) < 1 {
		t.Fatal("not caught")
	}
}
