// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "base/file_descriptor.h"

namespace rondo::base {

int write_all(int file, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

int replace_file(const std::string& path, const std::string& fresh, std::string_view text,
                 mode_t mode) noexcept {
  FileDescriptor file(::open(
      fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
  if (!file) return errno;
  int error = write_all(file.get(), text);
  // A file system without modes refuses this and has a rule of its own.
  static_cast<void>(::fchmod(file.get(), mode));
  file.reset();
  if (error == 0 && std::rename(fresh.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(fresh.c_str());
  return error;
}

}  // namespace rondo::base
