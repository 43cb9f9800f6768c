// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/bell.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include <rondo/error.h>

#include "transports/host/packet.h"

namespace rondo::shm {
namespace {

// A pipe without a reader would kill the rank that rings (SIGPIPE).
bool is_event(const base::FileDescriptor& descriptor) {
  std::array<char, 64> target{};
  const std::string path = fmt::format("/proc/self/fd/{}", descriptor.get());
  const auto length = ::readlink(path.c_str(), target.data(), target.size());
  if (length > 0)
    return std::string_view(target.data(), static_cast<std::size_t>(length)) ==
           "anon_inode:[eventfd]";
  // Without /proc: a file without a type is of the same kind as an eventfd, and none of that kind
  // sends SIGPIPE.
  struct stat status {};
  return ::fstat(descriptor.get(), &status) == 0 && (status.st_mode & S_IFMT) == 0;
}

base::Mapping map_word(const base::FileDescriptor& memory) {
  base::Mapping mapping(memory.get(), base::page_bytes(), base::Mapping::Access::write);
  mapping.hide_from_children();
  return mapping;
}

}  // namespace

Bell::Bell(Kind kind) {
  if (kind == Kind::word) {
    descriptor_ = base::make_shared_memory(base::page_bytes());
    memory_ = map_word(descriptor_);
    return;
  }
  descriptor_ = base::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!descriptor_) throw Error(Errc::system, "eventfd: " + host::describe_shortage(errno));
}

Bell::Bell(base::FileDescriptor offered) : descriptor_(std::move(offered)) {
  if (is_event(descriptor_)) return;
  if (!base::defect_of_memory(descriptor_.get(), base::page_bytes()).empty())
    throw Error(Errc::rendezvous, "its bell is neither an event nor a page of memory");
  memory_ = map_word(descriptor_);
  descriptor_.reset();
}

void Bell::ring() noexcept {
  if (base::WakeWord* const mine = word()) return base::wake_all(*mine);
  const std::uint64_t one = 1;
  while (::write(descriptor_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void Bell::clear() noexcept {
  std::uint64_t rings = 0;
  [[maybe_unused]] const auto got = ::read(descriptor_.get(), &rings, sizeof rings);
}

}  // namespace rondo::shm
