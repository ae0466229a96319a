// Package steps is what the smoke tests of Go's clients share: steps with a name, whose outcome and
// answer are written as outcomes.py says.
package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Address is where the server is.
func Address() string { return "127.0.0.1:" + os.Getenv("PORT") }

type outcome struct {
	Test    string `json:"test"`
	Outcome string `json:"outcome"`
	Why     string `json:"why"`
	Answer  string `json:"answer,omitempty"`
}

// Step runs one step, for 30 seconds at most; what it returns is its answer.
func Step(test string, run func(ctx context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	line := outcome{Test: test, Outcome: "passed"}
	type told struct {
		answer any
		err    error
	}
	done := make(chan told, 1)
	go func() {
		answer, err := run(ctx)
		done <- told{answer, err}
	}()
	select {
	case told := <-done:
		line.Answer = fmt.Sprintf("%v", told.answer)
		if told.err != nil {
			line.Outcome, line.Why = "failed", told.err.Error()
		}
	case <-ctx.Done():
		line.Outcome, line.Why = "failed", "no answer within 30 s"
	}
	file, err := os.OpenFile(os.Getenv("RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if err := json.NewEncoder(file).Encode(line); err != nil {
		panic(err)
	}
}
