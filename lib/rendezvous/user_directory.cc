// SPDX-License-Identifier: Apache-2.0
#include "lib/rendezvous/user_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include <rondo/error.h>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "lib/wire/socket.h"

namespace rondo::rendezvous {
namespace {

constexpr std::size_t key_bytes = 32;
using Key = std::array<unsigned char, key_bytes>;

constexpr const char* remedy =
    "; set RONDO_RENDEZVOUS and RONDO_SECRET, or XDG_RUNTIME_DIR to a directory of your own";
constexpr const char* remedy_for_dumps = "; set RONDO_DUMP to a directory of your own";

// Returns what is wrong with the directory; empty if it can be used. barred: mode bits.
std::string examine(const std::string& path, mode_t barred = 077) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return base::describe_errno(errno);
  if (!S_ISDIR(status.st_mode)) return "it is not a directory";
  if (barred != 0 && status.st_uid != ::geteuid())
    return "it belongs to user " + std::to_string(status.st_uid);
  if ((status.st_mode & barred) != 0) return "others may enter it (mode 0700 is needed)";
  return {};
}

// Reads the key; false if there is none. Throws Error if it is damaged or others can read it.
bool read_key(const std::string& path, Key& key) {
  const base::FileDescriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) {
    if (errno == ENOENT) return false;
    throw Error(Errc::system,
                "the key " + path + " cannot be read: " + base::describe_errno(errno) + remedy);
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid() || (status.st_mode & 077) != 0 ||
      ::read(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()))
    throw Error(Errc::system,
                "the key " + path + " is damaged or open to others: remove it" + remedy);
  ::futimens(file.get(), nullptr);  // cleaners of /tmp go by age
  return true;
}

// If several processes come at once, link() lets exactly one of them put its whole key there.
void make_key(const std::string& path) {
  Key key;
  if (RAND_bytes(key.data(), static_cast<int>(key.size())) != 1)
    throw Error(Errc::system, "no random bytes from OpenSSL for the key " + path);
  std::string temporary = path + ".XXXXXX";
  const base::FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file)
    throw Error(Errc::system,
                "the key " + path + " cannot be made: " + base::describe_errno(errno) + remedy);
  const bool written =
      ::write(file.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size());
  const bool linked = written && (::link(temporary.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  ::unlink(temporary.c_str());
  if (!linked)
    throw Error(Errc::system,
                "the key " + path + " cannot be written: " + base::describe_errno(error) + remedy);
}

}  // namespace

std::string dump_directory() {
  const char* const temporary = std::getenv("TMPDIR");
  std::string path = fmt::format(
      "{}/rondo-{}", temporary != nullptr && *temporary == '/' ? temporary : "/tmp", ::geteuid());
  make_dump_directory(path, 077);
  make_dump_directory(path += "/dumps", 077);
  return path;
}

void make_dump_directory(const std::string& path, mode_t barred) {
  const std::string why = ::mkdir(path.c_str(), 0700) == 0 ? std::string()
                          : errno != EEXIST                ? base::describe_errno(errno)
                                                           : examine(path, barred);
  if (!why.empty())
    throw Error(Errc::system, fmt::format("the directory {} cannot be used for dumps: {}{}",
                                          base::printable(path), why, remedy_for_dumps));
}

std::string user_directory() {
  std::vector<std::string> parents;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') parents.emplace_back(runtime);
  parents.emplace_back("/tmp");
  for (const std::string& parent : parents) {
    std::string path = parent + "/rondo-" + std::to_string(::geteuid());
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      // XDG_RUNTIME_DIR may be that of another user or of a session that is gone.
      if (parent != parents.back()) continue;
      throw Error(Errc::system, fmt::format("the directory {} cannot be made: {}{}", path,
                                            base::describe_errno(errno), remedy));
    }
    if (const std::string why = examine(path); !why.empty())
      throw Error(Errc::system,
                  fmt::format("the directory {} cannot be trusted: {}{}", path, why, remedy));
    return path;
  }
  return {};
}

std::string user_secret(std::string_view name) {
  const std::string path = user_directory() + "/key";
  Key key;
  if (!read_key(path, key)) {
    make_key(path);
    if (!read_key(path, key))
      throw Error(Errc::system, "the key " + path + " went away while it was made" + remedy);
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int bytes = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(name.data()), name.size(), digest.data(),
           &bytes) == nullptr)
    throw Error(Errc::system, "OpenSSL has no HMAC-SHA256 here");
  return base::hex(std::span(digest).first(bytes));
}

}  // namespace rondo::rendezvous
