// SPDX-License-Identifier: Apache-2.0
//
// Ends a connection without losing what was sent over it. close() resets a connection that has
// unread bytes, and so does a frame that comes after close(). The kernel then drops what it has not
// delivered. So a rank that leaves reads and drops what comes, until the peer's host has its last
// bytes. A reset that comes later does no harm: Linux keeps what the receiver has not read yet.
#pragma once

namespace rondo::tcp {

// Both are thread-safe and do not block; errors of the socket are ignored.

// Drops what has come. Returns whether the peer's host has all that was sent, or the connection is
// closed. Within a host what has been sent is there: its acknowledgement, which the kernel may
// delay by 40 ms, does not count.
bool drop_and_look(int socket) noexcept;

// Sends the end of the stream, ahead of the reset that close() may send. What is not delivered yet
// stays with the kernel, which may try for longer than Options::peer_timeout. A frame that the peer
// sends after close() ends that: to a rank that has left, point::credit_is_due sends none.
void end_sending(int socket) noexcept;

}  // namespace rondo::tcp
