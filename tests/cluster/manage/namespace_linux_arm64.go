package main

import "syscall"

const setns = syscall.SYS_SETNS
