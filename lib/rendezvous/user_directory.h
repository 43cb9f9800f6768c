// SPDX-License-Identifier: Apache-2.0
//
// A directory of this user on this host, and a key in it that no other user can read: what lets the
// ranks of one user find and trust each other on one host without any configuration.
#pragma once

#include <string>
#include <string_view>

namespace rondo::rendezvous {

// ${XDG_RUNTIME_DIR}/rondo-UID or /tmp/rondo-UID, made when it is not there. Throws Error when it
// cannot be made, is a symbolic link, belongs to another user or lets others in.
std::string user_directory();

// HMAC-SHA256 of the name under the user's key, as hex digits: the same for every process of this
// user on this host, for nobody else. The key (directory/key, 32 random bytes, mode 0600) is made
// by whoever comes first.
std::string user_secret(std::string_view name);

}  // namespace rondo::rendezvous
