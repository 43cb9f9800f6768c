// SPDX-License-Identifier: Apache-2.0
//
// A rank that `rondo run` starts: metrics_test.py reads the files that it writes. The argument says
// what it does.
#include <rondo/rondo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

void call(rondo::Communicator& c, std::string_view tag, std::size_t count = 1) {
  std::vector<float> values(count, 1);
  rondo::OpOptions options;
  options.tag = tag;
  const rondo::Buffer both{values.data(), count, rondo::DType::f32};
  c.all_reduce(both, both, rondo::ReduceOp::sum, options).wait();
}

// Rank 1 comes late to each call. The last one fails, because counts differ.
void be_late(rondo::Communicator& c) {
  for (int i = 0; i < 100; ++i) {
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds{5});
    call(c, "step");
  }
  char text = 'x';
  const rondo::Buffer one{&text, 1, rondo::DType::u8};
  if (c.rank() == 0)
    c.send(one, 1).wait();
  else
    c.receive(one, 0).wait();
  c.barrier().wait();
  try {
    call(c, "step", c.rank() == 0 ? 1 : 2);
  } catch (const rondo::Error&) {
  }
}

void use_tags(rondo::Communicator& c) {
  for (int i = 0; i < 40; ++i) call(c, "tag " + std::to_string(i));
}

// A split, and one that ends before the others.
void use_several(rondo::Communicator& c) {
  auto half = c.split(c.rank() % 2, 0);
  {
    auto reversed = c.split(0, -c.rank());
    for (int i = 0; i < 7; ++i) call(*reversed, "");
  }
  for (int i = 0; i < 5; ++i) call(*half, "");
  for (int i = 0; i < 3; ++i) call(c, "");
  c.barrier().wait();
}

// The parent's file goes away, and the child must not write another one.
int fork_child(rondo::Communicator c, const std::string& folder) {
  int go[2];
  if (::pipe(go) != 0) return 2;
  call(c, "");
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    ::close(go[1]);
    const bool closed = ::read(go[0], &byte, 1) == 0;  // when the parent has closed its end
    { const rondo::Communicator inherited = std::move(c); }
    // Without a check for leaks, which would miss the threads that the parent has.
    ::_exit(closed ? 0 : 3);
  }
  { const rondo::Communicator ended = std::move(c); }
  for (const auto& file : std::filesystem::directory_iterator(folder))
    std::filesystem::remove(file);
  ::close(go[1]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

int run(std::string_view what, const std::string& folder) {
  rondo::Communicator c = rondo::Communicator::connect();
  if (what == "late") be_late(c);
  if (what == "tags") use_tags(c);
  if (what == "several") use_several(c);
  if (what == "fork") return fork_child(std::move(c), folder);
  if (what == "gone") {  // the folder goes away
    call(c, "");
    if (c.rank() == 0) std::filesystem::rename(folder + "/here", folder + "/elsewhere");
    c.barrier().wait();
    for (int i = 0; i < 100; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
      call(c, "");
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return count == 3 ? run(arguments[1], arguments[2]) : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
