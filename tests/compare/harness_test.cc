// SPDX-License-Identifier: Apache-2.0
//
// The harness of the comparison with peers, with a library that only looks at its input.
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <future>
#include <set>

#include "base/file_descriptor.h"
#include "bench/peers/library.h"
#include "catch.h"

namespace {

using rondo::base::FileDescriptor;
using rondo::compare::Library;

struct Seen {
  std::vector<std::vector<float>> inputs;  // of every all_reduce
  int rewritten_late = 0;                  // inputs that changed between barrier and all_reduce
};

// One rank alone. Its sum is its input.
class Observer final : public Library {
 public:
  Observer(Seen& seen, bool in_place) : seen_(seen), in_place_(in_place) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> algorithms() const override { return {"default"}; }
  bool in_place(std::string_view) const override { return in_place_; }
  std::span<float> allocate(std::string_view, std::size_t) override { return {}; }
  void prepare(std::string_view, std::span<float> input, std::span<float> output) override {
    input_ = in_place_ ? output : input;
    output_ = output;
  }
  void all_reduce() override {
    seen_.inputs.push_back(values());
    if (at_barrier_ != seen_.inputs.back()) ++seen_.rewritten_late;
    std::copy(input_.begin(), input_.end(), output_.begin());
  }
  void barrier() override { at_barrier_ = values(); }
  void progress() override {}

 private:
  std::vector<float> values() const { return {input_.begin(), input_.end()}; }

  Seen& seen_;
  const bool in_place_;
  std::span<float> input_, output_;
  std::vector<float> at_barrier_;
};

// Returns what the library saw while a driver gave this command, and puts the answer into `answer`.
Seen seen_in(const std::string& command, bool in_place, std::string& answer) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("rondo-harness-test-" + std::to_string(::getpid()));
  std::filesystem::remove(path);
  const FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);

  Seen seen;
  std::future<int> rank = std::async(std::launch::async, [&] {
    return rondo::compare::run_rank(path,
                                    [&] { return std::make_unique<Observer>(seen, in_place); });
  });
  const FileDescriptor driver(::accept(listener.get(), nullptr, nullptr));
  std::filesystem::remove(path);
  const std::string lines = command + "\nrest\nquit\n";
  REQUIRE(::write(driver.get(), lines.data(), lines.size()) == static_cast<ssize_t>(lines.size()));
  REQUIRE(rank.get() == 0);
  std::string received(4096, '\0');
  received.resize(static_cast<std::size_t>(::read(driver.get(), received.data(), received.size())));
  answer = received.substr(received.find('\n') + 1);
  return seen;
}

}  // namespace

TEST_CASE("harness: fresh inputs are written before every iteration, turn leaves them") {
  const bool in_place = GENERATE(false, true);
  std::string answer;
  const Seen fresh = seen_in("fresh default 400 2 5", in_place, answer);
  CHECK(answer.starts_with("times "));
  CHECK(std::ranges::count(answer, ' ') == 5);
  REQUIRE(fresh.inputs.size() == 7);
  for (std::size_t i = 1; i < fresh.inputs.size(); ++i)
    for (std::size_t element = 0; element < 100; ++element)
      REQUIRE(fresh.inputs[i][element] != fresh.inputs[i - 1][element]);
  CHECK(fresh.rewritten_late == 0);

  const Seen used_again = seen_in("turn default 400 2 5", in_place, answer);
  CHECK(answer.starts_with("times "));
  CHECK(std::set(used_again.inputs.begin(), used_again.inputs.end()).size() == 1);
}
