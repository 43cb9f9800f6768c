// SPDX-License-Identifier: Apache-2.0
#include "tools/ranks/private_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view prefix = "rondo-run-", placeholder = "XXXXXX", lock_name = "lock",
                           rendezvous_name = "rendezvous";
constexpr int most_attempts = 100;

// The rendezvous file, or the temporary one that is renamed to it.
bool is_rendezvous(std::string_view name) {
  return name == rendezvous_name ||
         (name.starts_with(rendezvous_name) && name[rendezvous_name.size()] == '.');
}

bool lock(const base::FileDescriptor& file) {
  return file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

bool is_removed(const base::FileDescriptor& file) {
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 && status.st_nlink == 0;
}

bool is_private(const fs::path& directory) {
  struct stat status {};
  return ::lstat(directory.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid() && (status.st_mode & 07777) == 0700;
}

// Removes a directory that a killed process left behind. Leaves alone a directory that is in use,
// and one with files that such a process does not make.
void clear(const fs::path& directory) {
  if (!is_private(directory)) return;
  const base::FileDescriptor file(
      ::open((directory / lock_name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!lock(file)) return;
  std::error_code ignored;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(directory, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    if (name == lock_name) continue;
    if (!is_rendezvous(name)) return;
    files.push_back(entry->path());
  }
  if (ignored) return;
  files.push_back(directory /
                  lock_name);  // last: after a kill halfway the next process can still clear it
  for (const fs::path& name : files) ::unlink(name.c_str());
  ::rmdir(directory.c_str());
}

void clear_all(const fs::path& base) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(base, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    if (name.starts_with(prefix) && name.size() == prefix.size() + placeholder.size())
      found.push_back(entry->path());
  }
  for (const fs::path& directory : found) clear(directory);
}

}  // namespace

// Returns false when another process took the new directory for one that was left behind, and
// removed it before it was locked.
bool PrivateDirectory::make(const std::string& pattern) {
  std::string name = pattern;
  if (::mkdtemp(name.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), "cannot make the directory " + name);
  path_ = name;
  lock_ = base::FileDescriptor(
      ::open((path_ / lock_name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (lock(lock_)) return !is_removed(lock_);
  // Where files cannot be locked, no process clears directories either.
  return !lock_ || errno != EWOULDBLOCK;
}

PrivateDirectory::PrivateDirectory() {
  const char* given = std::getenv("TMPDIR");
  const fs::path base = given != nullptr && given[0] == '/' ? given : "/tmp";
  clear_all(base);
  const std::string pattern = (base / std::string(prefix)).string() + std::string(placeholder);
  for (int attempt = 0; attempt < most_attempts; ++attempt)
    if (make(pattern)) return;
  throw std::runtime_error("directories " + pattern + " are removed as soon as they are made");
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace rondo::tools
