// SPDX-License-Identifier: Apache-2.0
#include "tools/records/result_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/file.h"
#include "base/file_descriptor.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

[[noreturn]] void refuse(std::string_view flag, const std::string& path, int cause) {
  throw UsageError(fmt::format("{} {}: cannot be written: {}", flag, path,
                               std::generic_category().message(cause)));
}

std::optional<struct stat> look(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return {};
  return found;
}

void write_all(const base::FileDescriptor& file, std::string_view text, const std::string& path) {
  errno = base::write_all(file.get(), text);
  if (errno != 0) fail("cannot write " + path);
}

// Names the temporary file beside it. The process id keeps two processes apart. A file that an
// ended process with the same id left may be removed.
std::string beside(const std::string& path) {
  return fmt::format("{}.{}.part", path, ::getpid());
}

// Appends to the standard output, or to a file that stays open until the end, because a reader of a
// pipe takes a close for the end. The first text truncates the file.
void append(const std::string& path, base::FileDescriptor& file, std::string_view text) {
  if (path == "-") {
    print_text(text);
    return flush_output();
  }
  if (!file)
    file = base::FileDescriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_TRUNC | O_APPEND));
  if (!file) fail("cannot write " + path);
  write_all(file, text, path);
}

base::FileDescriptor make_beside(const std::string& path) {
  const std::string name = beside(path);
  ::unlink(name.c_str());
  return base::FileDescriptor(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
}

}  // namespace

bool is_standard_output(const std::string& path) {
  return path == "-" || path == "/dev/stdout" || path == "/dev/fd/1" || path == "/proc/self/fd/1";
}

bool is_one_file(const std::string& path, const std::string& other) {
  if (is_standard_output(path) || is_standard_output(other))
    return is_standard_output(path) && is_standard_output(other);
  std::error_code unknown;
  if (const auto found = look(path); found && !S_ISREG(found->st_mode)) return false;
  return fs::weakly_canonical(path, unknown) == fs::weakly_canonical(other, unknown) ||
         fs::equivalent(path, other, unknown);
}

ResultFile::ResultFile(std::string_view flag, const std::string& path) : path_(path) {
  if (is_standard_output(path)) {
    path_.assign(1, '-');
    return;
  }
  const auto found = look(path);
  if (found && S_ISDIR(found->st_mode)) refuse(flag, path, EISDIR);
  if (found && ::access(path.c_str(), W_OK) != 0) refuse(flag, path, errno);
  if (found && !S_ISREG(found->st_mode)) return;
  // Replaces the file behind a link, not the link.
  std::error_code unknown;
  if (const fs::path real = fs::canonical(path, unknown); !unknown) path_ = real.string();
  replaced_ = static_cast<bool>(make_beside(path_));
  if (replaced_)
    ::unlink(beside(path_).c_str());
  else if (!found)
    refuse(flag, path, errno);
}

void ResultFile::replace(std::string_view text, std::string_view end) const {
  const std::string name = beside(path_);
  const base::FileDescriptor file = make_beside(path_);
  if (!file) fail("cannot write " + name);
  try {
    write_all(file, text, name);
    write_all(file, end, name);
    // Users who could read the old file can read the new one, as far as the system allows it.
    if (const auto old = look(path_)) {
      [[maybe_unused]] const int owner = ::fchown(file.get(), old->st_uid, old->st_gid);
      [[maybe_unused]] const int mode = ::fchmod(file.get(), old->st_mode & 0777);
    }
  } catch (...) {
    ::unlink(name.c_str());
    throw;
  }
  // On failure the temporary file stays: it is whole.
  if (::rename(name.c_str(), path_.c_str()) != 0)
    fail(fmt::format("the results are in {}, which cannot be renamed to {}", name, path_));
}

void ResultFile::update(std::string_view text, std::string_view end, bool last) {
  if (replaced_) return replace(text, end);
  append(path_, file_, text.substr(written_));
  written_ = text.size();
  if (last) append(path_, file_, end);
}

void write_report(std::string_view flag, const std::string& path, std::string_view text) {
  ResultFile(flag, path).update(text, {}, true);
}

LineFile::LineFile(std::string_view flag, const std::string& path)
    : path_(is_standard_output(path) ? "-" : path) {
  if (path_ == "-") return;
  // A reader of a pipe takes the close of this attempt for the end.
  if (const auto found = look(path_);
      found && S_ISFIFO(found->st_mode) && ::access(path_.c_str(), W_OK) == 0)
    return;
  if (!base::FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)))
    refuse(flag, path, errno);
}

void LineFile::add(std::string_view line) {
  append(path_, file_, fmt::format("{}\n", line));
}

}  // namespace rondo::tools
