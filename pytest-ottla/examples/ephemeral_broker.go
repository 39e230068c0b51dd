// Runs a broker for tests in Go, and orders faults and time. It needs no module. The broker ends with this process.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// EphemeralBroker is a broker whose standard input takes commands.
type EphemeralBroker struct {
	BootstrapServers string

	command *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Reader
}

// Start runs a broker, and returns when it is ready.
func Start(command string, settings map[string]string) (*EphemeralBroker, error) {
	arguments := []string{"serve", "--ephemeral", "--json"}
	for name, value := range settings {
		arguments = append(arguments, "--set", name+"="+value)
	}
	broker := &EphemeralBroker{command: exec.Command(command, arguments...)}
	broker.command.Stderr = os.Stderr
	var err error
	if broker.orders, err = broker.command.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := broker.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	broker.answers = bufio.NewReader(output)
	if err = broker.command.Start(); err != nil {
		return nil, err
	}
	var described struct {
		BootstrapServers string `json:"bootstrap_servers"`
	}
	line, err := broker.answers.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the broker did not start: %w", err)
	}
	if err = json.Unmarshal(line, &described); err != nil {
		return nil, err
	}
	broker.BootstrapServers = described.BootstrapServers
	return broker, nil
}

// Order sends a command and waits for its result, for example Order("advance", map[string]any{"ms": 7 * 3_600_000}).
func (broker *EphemeralBroker) Order(command string, values map[string]any) (any, error) {
	order := map[string]any{"do": command}
	for name, value := range values {
		order[name] = value
	}
	line, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	if _, err = broker.orders.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	var answer struct {
		Result any
		Error  string
	}
	if line, err = broker.answers.ReadBytes('\n'); err != nil {
		return nil, err
	}
	if err = json.Unmarshal(line, &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Result, nil
}

// Close ends the broker and removes its data.
func (broker *EphemeralBroker) Close() error {
	if err := broker.orders.Close(); err != nil {
		return err
	}
	return broker.command.Wait()
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func record(value string) map[string]any {
	encoded := base64.StdEncoding.EncodeToString([]byte(value))
	return map[string]any{"topic": "orders", "records": []any{[]any{nil, encoded, 0}}}
}

func main() {
	command := "ottla"
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	broker := must(Start(command, map[string]string{"num.partitions": "1"}))
	must(broker.Order("create_topic", map[string]any{
		"topic": "orders", "partitions": 1, "replication_factor": 1, "config": map[string]string{"retention.ms": "3600000"},
	}))
	must(broker.Order("fail", map[string]any{"api": "PRODUCE", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2})) // clients retry
	must(broker.Order("produce", record("old")))
	must(broker.Order("roll", map[string]any{"topic": "orders"}))
	must(broker.Order("advance", map[string]any{"ms": 7 * 3_600_000})) // the retention of an hour has passed
	must(broker.Order("produce", record("new")))
	records := must(broker.Order("consume", map[string]any{"topic": "orders", "count": 1, "timeout": 10})).([]any)
	value := must(base64.StdEncoding.DecodeString(records[0].([]any)[3].(string)))
	if err := broker.Close(); err != nil {
		panic(err)
	}
	fmt.Println(string(value))
}
