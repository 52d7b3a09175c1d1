// Command worker runs the jobs of a table of SQLite, eight at once, and writes how they ended:
// go run ./examples/worker jobs.db [--once]. Each job's key is its row, so none runs twice, even if
// the worker dies. SECBOX_SERVER and SECBOX_TOKEN name core-api.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	_ "modernc.org/sqlite"

	client "secbox/clients/go"
)

const take = "UPDATE jobs SET status = 'taken' WHERE id = (SELECT min(id) FROM jobs WHERE status = 'open') RETURNING id, script"

func main() {
	c, err := client.New(client.Config{Server: os.Getenv("SECBOX_SERVER"), Token: os.Getenv("SECBOX_TOKEN")})
	check(err)
	db, err := sql.Open("sqlite", os.Args[1])
	check(err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec("UPDATE jobs SET status = 'open' WHERE status = 'taken'") // of a worker that died
	check(err)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for id, script := int64(0), ""; ; {
				switch err := db.QueryRow(take).Scan(&id, &script); {
				case err == nil:
					run(c, db, id, script)
				case !errors.Is(err, sql.ErrNoRows):
					log.Fatal(err)
				case len(os.Args) > 2:
					return
				default:
					time.Sleep(time.Second)
				}
			}
		})
	}
	workers.Wait()
}

func run(c *client.Client, db *sql.DB, id int64, script string) {
	name := fmt.Sprint("job-", id)
	res, err := c.Run(context.Background(), client.Request{
		Project: name, Task: &client.TaskRef{TaskID: name}, Key: "jobs/go/" + name, Command: client.Command{Script: script},
	})
	status, detail := res.Status, res.Detail
	if err != nil {
		status, detail = "refused", err.Error()
		if client.CodeOf(err) == client.Unreachable {
			status = "open" // later
		}
	}
	_, err = db.Exec("UPDATE jobs SET status = ?, exit_code = ?, stdout = ?, detail = ? WHERE id = ?", status, res.ExitCode, res.Stdout, detail, id)
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
