// Writes records to a secured cluster and reads them back, by franz-go, sarama or kafka-go.
//
// It is compiled with one of the build tags franz, sarama and kafkago, so no test waits for a library that it does not use.
//
//	secured LIBRARY BROKER TOPIC COUNT CA scram USER PASSWORD
//	secured LIBRARY BROKER TOPIC COUNT CA plain USER PASSWORD
//	secured LIBRARY BROKER TOPIC COUNT CA oauthbearer USER TOKEN
//	secured LIBRARY BROKER TOPIC COUNT CA mutual CERTIFICATE KEY
//
// It prints the number of records that came back whole and in order. LIBRARY is franz, sarama or kafka-go, which has no OAUTHBEARER. CA,
// CERTIFICATE and KEY are PEM files. With kafka-go-acls it creates, describes and deletes COUNT ACLs of the topic instead, and prints how
// many it deleted.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"time"
)

const patience = 60 * time.Second

// login has a token in place of the password where the mode is oauthbearer.
type login struct{ mode, user, password string }

// client writes the records and reads them back; it returns how many came back in order.
type client func(broker, topic string, count int, security *tls.Config, credentials *login) int

// clients are those of the library with which the program is compiled.
var clients = map[string]client{}

func main() {
	library, broker, topic := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	security, credentials := secured(os.Args[5], os.Args[6], os.Args[7], os.Args[8])
	fmt.Println(clients[library](broker, topic, count, security, credentials))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func value(number int) string { return fmt.Sprintf("record %06d", number) }

// secured gives the TLS of connections, and the login unless the mode is mutual.
func secured(authority, mode, first, second string) (*tls.Config, *login) {
	trusted, err := os.ReadFile(authority)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	found := &tls.Config{RootCAs: pool, ServerName: "localhost"}
	if mode != "mutual" {
		return found, &login{mode, first, second}
	}
	certificate, err := tls.LoadX509KeyPair(first, second)
	check(err)
	found.Certificates = []tls.Certificate{certificate}
	return found, nil
}
