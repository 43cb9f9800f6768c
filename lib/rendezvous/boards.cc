// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include <rondo/error.h>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "lib/rendezvous/announcement.h"
#include "lib/wire/socket.h"

namespace rondo::rendezvous {
namespace {

enum class Found { nothing, text, unreadable };

// Never follows a link and never blocks on something that is not a regular file.
Found read_regular(const std::string& path, std::string& text, std::string& why) {
  const base::FileDescriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!file) {
    if (errno == ENOENT) return Found::nothing;
    why = errno == ELOOP ? "it is a symbolic link" : base::describe_errno(errno);
    return Found::unreadable;
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    why = "it is not a regular file";
    return Found::unreadable;
  }
  std::array<char, most_announcement_bytes + 1> bytes;
  const ssize_t count = ::read(file.get(), bytes.data(), bytes.size());
  if (count < 0) {
    why = base::describe_errno(errno);
    return Found::unreadable;
  }
  text.assign(bytes.data(), static_cast<std::size_t>(count));
  return Found::text;
}

[[noreturn]] void refuse(Errc code, const std::string& path, const std::string& why) {
  throw Error(code, "the rendezvous file " + path + ": " + why);
}

enum class Way { create, replace };

// Writes the file as a whole: readers see the old one or the new one. Returns false if it was to be
// created and exists already.
bool write_file(const std::string& path, const std::string& text, Way way) {
  std::string temporary = path + ".XXXXXX";
  const base::FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (!file)
    refuse(Errc::system, path,
           "no temporary file can be made in its directory: " + base::describe_errno(errno));
  const ssize_t count = ::write(file.get(), text.data(), text.size());
  const bool written = count == static_cast<ssize_t>(text.size());
  if (written && way == Way::create) {
    const int error = ::link(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
    // Without hard links rename() below is used: of two processes at once, the last one wins.
    if (error == 0 || error == EEXIST) {
      ::unlink(temporary.c_str());
      return error == 0;
    }
  }
  if (written && ::rename(temporary.c_str(), path.c_str()) == 0) return true;
  const std::string why = written || count < 0 ? base::describe_errno(errno) : "the disk is full";
  ::unlink(temporary.c_str());
  refuse(Errc::system, path, "it cannot be written: " + why);
}

class FileBoard final : public Board {
 public:
  explicit FileBoard(std::string path) : path_(std::move(path)) {}
  ~FileBoard() override { withdraw(); }

  void announce(const Announcement& announcement) override {
    const std::string text = write_announcement(announcement);
    // If two processes find nothing at the same time, the second one finds the first one here.
    for (int attempt = 0; attempt < most_attempts; ++attempt) {
      if (!write_file(path_, text, check_place(announcement))) continue;
      announced_ = announcement.job;
      return;
    }
    refuse(Errc::rendezvous, path_,
           "other processes keep making and removing it: give this job a path of its own");
  }

  void withdraw() noexcept override {
    if (!announced_) return;
    std::string text, why;
    if (read_regular(path_, text, why) == Found::text) {
      const auto now = parse_announcement(text);
      if (now && now->job == *announced_) ::unlink(path_.c_str());
    }
    announced_.reset();
  }

  std::optional<Announcement> look(base::TimePoint, std::string& why) override {
    std::string text, problem;
    const Found found = read_regular(path_, text, problem);
    std::optional<Announcement> announcement;
    if (found == Found::nothing)
      why =
          "the file " + path_ + " does not exist: rank 0 has not started, or it uses another path";
    else if (found == Found::unreadable)
      why = "the file " + path_ + " cannot be read: " + problem;
    else if (announcement = parse_announcement(text); !announcement)
      why = "the file " + path_ + " is not a rendezvous file";
    else if (liveness_of(*announcement) == Liveness::gone)
      why = "the file " + path_ + " was left behind by a process that is gone",
      announcement.reset();
    return announcement;
  }

 private:
  // Throws if a living process or something else has the place.
  Way check_place(const Announcement& announcement) const {
    std::string text, why;
    const Found found = read_regular(path_, text, why);
    if (found == Found::unreadable) refuse(Errc::invalid_argument, path_, why);
    if (found == Found::text && !text.empty()) {
      const auto earlier = parse_announcement(text);
      if (!earlier)
        refuse(Errc::invalid_argument, path_,
               "it is not a rendezvous file: give the rendezvous a path of its own");
      if (earlier->process != announcement.process && liveness_of(*earlier) == Liveness::alive)
        refuse(Errc::rendezvous, path_,
               "process " + earlier->process.substr(0, earlier->process.find('.')) +
                   " is rank 0 there and still runs: start rank 0 once, or give each job a path of "
                   "its own");
    }
    return found == Found::nothing ? Way::create : Way::replace;
  }

  static constexpr int most_attempts = 16;
  std::string path_;
  std::optional<std::uint64_t> announced_;
};

class StoreBoard final : public Board {
 public:
  explicit StoreBoard(Store& store) : store_(store) {}

  void announce(const Announcement& announcement) override {
    store_.put(key, write_announcement(announcement));
  }

  // If this fails, later ranks try the old value until rank 0 has replaced it.
  void withdraw() noexcept override {
    try {
      store_.remove(key);
    } catch (const std::exception&) {
    }
  }

  std::optional<Announcement> look(base::TimePoint until, std::string& why) override {
    std::string text;
    try {
      text = store_.get(key, until);
    } catch (const Error& error) {
      if (error.code() != Errc::deadline_exceeded) throw;
      why = "rank 0 has put no address into the program's store";
      return std::nullopt;
    }
    auto announcement = parse_announcement(text);
    if (!announcement)
      why =
          "the value of 'rondo/rendezvous' in the program's store is not of this version of Rondo";
    else if (liveness_of(*announcement) == Liveness::gone)
      why = "the program's store has only the address of a process that is gone",
      announcement.reset();
    return announcement;
  }

 private:
  static constexpr std::string_view key = "rondo/rendezvous";
  Store& store_;
};

}  // namespace

std::unique_ptr<Board> file_board(std::string path) {
  return std::make_unique<FileBoard>(std::move(path));
}
std::unique_ptr<Board> store_board(Store& store) {
  return std::make_unique<StoreBoard>(store);
}

}  // namespace rondo::rendezvous
