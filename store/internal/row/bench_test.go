package row_test

import (
	"testing"
	"time"

	"secbox/store/internal/row"
	"secbox/store/storetest/planprobe"
)

func encodeTime(t time.Time) any { return t.UnixMicro() }

func BenchmarkInsertArgs(b *testing.B) {
	r := planprobe.Exec(1, 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := row.InsertArgs(r, encodeTime); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCloseArgs(b *testing.B) {
	r := planprobe.Exec(1, 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := row.CloseArgs(r, encodeTime); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	_, values, err := row.InsertArgs(planprobe.Exec(1, 10), encodeTime)
	if err != nil {
		b.Fatal(err)
	}
	scan := func(dest ...any) error {
		for i, d := range dest {
			switch d := d.(type) {
			case *string:
				*d = values[i].(string)
			case *int64:
				*d = values[i].(int64)
			case **int:
				*d = new(int(values[i].(int64)))
			case **int64:
				*d = new(values[i].(int64))
			case interface{ Scan(any) error }:
				if err := d.Scan(values[i]); err != nil {
					return err
				}
			}
		}
		return nil
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := row.ScanRecord(scan); err != nil {
			b.Fatal(err)
		}
	}
}
