package statedir

import (
	"strings"

	"golang.org/x/sys/windows"
)

// makePrivate lets only this user, SYSTEM and administrators into the directory, as a user's
// profile does. A mode does not say that on Windows, where a new directory of a drive may be open
// to every user of the machine.
func makePrivate(dir string) error { return restrict(dir, "OICI") } // what is made in it inherits that

// makeFilePrivate does the same for a file.
func makeFilePrivate(path string) error { return restrict(path, "") }

func restrict(path, flags string) error {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return err
	}
	want, err := windows.SecurityDescriptorFromString(strings.ReplaceAll("D:P(A;flags;FA;;;"+user.User.Sid.String()+
		")(A;flags;FA;;;SY)(A;flags;FA;;;BA)", "flags", flags))
	if err != nil {
		return err
	}
	// Only if it differs, since Windows then visits all files below.
	found, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION)
	if err == nil && entries(found) == entries(want) {
		return nil
	}
	dacl, _, err := want.DACL()
	if err != nil {
		return err
	}
	return windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, dacl, nil)
}

// entries is the list of who may do what, without flags such as P, which says that nothing is
// inherited: inherited entries are marked themselves.
func entries(sd *windows.SECURITY_DESCRIPTOR) string {
	_, list, _ := strings.Cut(sd.String(), "(")
	return list
}
