// SPDX-License-Identifier: Apache-2.0
//
// Annotations that say which lock guards what. clang checks them (-Wthread-safety), other compilers
// skip them. clang's page "Thread Safety Analysis" explains each.
#pragma once

#if defined(__clang__)
#define RONDO_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define RONDO_THREAD_ATTRIBUTE(attribute)
#endif

// On a class: it is a lock, or holds one for as long as the object lives.
#define RONDO_CAPABILITY(name) RONDO_THREAD_ATTRIBUTE(capability(name))
#define RONDO_SCOPED_CAPABILITY RONDO_THREAD_ATTRIBUTE(scoped_lockable)
// On a member: the lock must be held to use it.
#define RONDO_GUARDED_BY(lock) RONDO_THREAD_ATTRIBUTE(guarded_by(lock))
// On a function: the caller must hold the lock, or must not hold it.
#define RONDO_REQUIRES(...) RONDO_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define RONDO_EXCLUDES(...) RONDO_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// On a function: it takes the lock, or releases it.
#define RONDO_ACQUIRE(...) RONDO_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RONDO_RELEASE(...) RONDO_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
// On a function: it asserts that the caller holds the lock, where the analysis cannot see that; or
// it returns a reference to the lock.
#define RONDO_ASSERT_CAPABILITY(lock) RONDO_THREAD_ATTRIBUTE(assert_capability(lock))
#define RONDO_RETURN_CAPABILITY(lock) RONDO_THREAD_ATTRIBUTE(lock_returned(lock))
