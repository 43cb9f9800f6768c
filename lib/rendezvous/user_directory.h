// SPDX-License-Identifier: Apache-2.0
//
// A directory of this user on this host, with a key that no other user can read. So the ranks of
// one user can find and trust each other on one host without any configuration. Thread-safe.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace rondo::rendezvous {

// Returns ${XDG_RUNTIME_DIR}/rondo-UID or /tmp/rondo-UID, and makes it if it does not exist. Throws
// Error(system) if it cannot be made, is a symbolic link, belongs to another user or lets others
// in.
std::string user_directory();

// Returns ${TMPDIR}/rondo-UID/dumps or /tmp/rondo-UID/dumps, for dumps of the recorder. Makes it
// and refuses it as user_directory() does.
std::string dump_directory();
// Makes a directory of mode 0700 for dumps. Throws Error(system) if it cannot be made, or if it
// exists and is a symbolic link, belongs to another user or has one of the mode bits `barred`. 0:
// any owner will do, as the folder may be on NFS, where directories of root may belong to nobody.
void make_dump_directory(const std::string& path, mode_t barred);

// Returns HMAC-SHA256 of the name under the user's key, as hex digits: the same for every process
// of this user on this host, and for no other. The first process makes the key (directory/key, 32
// random bytes, mode 0600).
std::string user_secret(std::string_view name);

}  // namespace rondo::rendezvous
